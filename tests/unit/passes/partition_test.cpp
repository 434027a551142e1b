// The partitioner on programs written for it: fully sharded and tensor parallel steps, the borders
// of shard_map, numbers that do not depend on the mesh, errors, notes, the cost of large meshes.
#include "stowage/passes/partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <random>

#include "stowage/api/policies.h"
#include "stowage/autodiff/reverse.h"
#include "stowage/core/scalar.h"
#include "stowage/ir/print.h"
#include "stowage/ir/utilities.h"
#include "stowage/ops/build.h"
#include "stowage/ops/verify.h"
#include "stowage/passes/residuals.h"
#include "stowage/passes/simplify.h"
#include "stowage/session/compile.h"
#include "tests/support/evaluate_on_mesh.h"
#include "tests/support/message_of.h"

namespace stow {
namespace {

using testing::Bytes;
using ::testing::HasSubstr;
using testing::MeshTraffic;
using testing::PerPosition;

AxisSharding cut_by(std::vector<MeshAxes> axes) {
  return {.axes = std::move(axes)};
}

Bytes random_floats(const ArrayType& type, uint64_t seed) {
  std::mt19937_64 rng(seed);
  Bytes bytes;
  for (int64_t i = 0; i < type.elems(); ++i) {
    const double x = is_float(type.dtype) ? std::uniform_real_distribution(-0.5, 0.5)(rng)
                                          : static_cast<double>(rng() % 7);
    const auto element = encode_scalar(type.dtype, x);
    bytes.insert(bytes.end(), element->begin(), element->end());
  }
  return bytes;
}

struct Program {
  Graph graph;
  std::vector<AxisSharding> in;
  std::vector<std::optional<AxisSharding>> out;
};

// The outputs of a program over a mesh, put together, and what its positions sent.
std::vector<Bytes> run_on(const Program& program, const Partitioned& local, const MeshShape& mesh,
                          const std::vector<Bytes>& inputs, MeshTraffic* traffic = nullptr) {
  verify(local.graph);
  PerPosition parts(static_cast<size_t>(mesh.size()));
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto cut =
        testing::cut(program.graph.type(program.graph.inputs()[i]), inputs[i], program.in[i], mesh);
    for (size_t d = 0; d < parts.size(); ++d) parts[d].push_back(cut[d]);
  }
  const PerPosition results = testing::evaluate_on_mesh(local.graph, mesh, parts, traffic);
  std::vector<Bytes> wholes;
  for (size_t o = 0; o < program.graph.outputs().size(); ++o) {
    std::vector<Bytes> each;
    for (const auto& outputs : results) each.push_back(outputs[o]);
    const ArrayType& type = program.graph.type(program.graph.outputs()[o]);
    const auto whole = testing::join(type, each, local.out[o], mesh);
    EXPECT_TRUE(whole) << "copies of output " << o << " differ";
    wholes.push_back(whole.value_or(Bytes()));
  }
  return wholes;
}

std::vector<Bytes> random_inputs(const Graph& graph) {
  std::vector<Bytes> inputs;
  for (size_t i = 0; i < graph.inputs().size(); ++i)
    inputs.push_back(random_floats(graph.type(graph.inputs()[i]), i + 1));
  return inputs;
}

// Each element within `error` of the largest of the whole.
void expect_near(const ArrayType& type, const Bytes& got, const Bytes& want, double error) {
  ASSERT_EQ(got.size(), want.size());
  const auto width = static_cast<size_t>(dtype_bytes(type.dtype));
  double size = 0;
  for (size_t i = 0; i < want.size(); i += width)
    size = std::max(size, std::fabs(decode_scalar(type.dtype, std::span(want).subspan(i, width))));
  for (size_t i = 0; i < want.size(); i += width)
    ASSERT_NEAR(decode_scalar(type.dtype, std::span(got).subspan(i, width)),
                decode_scalar(type.dtype, std::span(want).subspan(i, width)), error * size)
        << to_string(type) << " at byte " << i;
}

void expect_whole(const Program& program, const MeshShape& mesh, double error = 1e-5) {
  const std::vector<Bytes> inputs = random_inputs(program.graph);
  const std::vector<Bytes> want = testing::evaluate(program.graph, inputs);
  const Partitioned local = partition(program.graph, mesh, program.in, program.out);
  const std::vector<Bytes> got = run_on(program, local, mesh, inputs);
  for (size_t o = 0; o < want.size(); ++o)
    ASSERT_NO_FATAL_FAILURE(
        expect_near(program.graph.type(program.graph.outputs()[o]), got[o], want[o], error));
}

// ---- A step of a stack of blocks ----

constexpr int64_t kLayers = 3, kTokens = 64, kWidth = 8, kInner = 16;

// h + relu(h w1) w2, products of bf16 parameters and activations, sums in f32.
GraphPtr block(DType compute) {
  auto body = std::make_shared<Graph>();
  GraphBuilder b(*body);
  const Val h(b, body->add_input({DType::kF32, {kTokens, kWidth}}));
  const Val w1(b, body->add_input({DType::kF32, {kWidth, kInner}}));
  const Val w2(b, body->add_input({DType::kF32, {kInner, kWidth}}));
  const auto product = [&](const Val& x, const Val& w) {
    return dot_general(convert(x, compute), convert(w, compute), {{1}, {0}, {}, {}, DType::kF32});
  };
  const Val up = product(h, w1);
  body->set_outputs({(h + product(max(up, zeros_like(up)), w2)).id()});
  return body;
}

// (x, w1, w2, 1) -> loss and updated parameters.
Graph step(DType compute) {
  Graph forward;
  GraphBuilder b(forward);
  const Val x(b, forward.add_input({DType::kF32, {kTokens, kWidth}}, "x"));
  const Val w1(b, forward.add_input({DType::kF32, {kLayers, kWidth, kInner}}, "w1"));
  const Val w2(b, forward.add_input({DType::kF32, {kLayers, kInner, kWidth}}, "w2"));
  const ScanParams p{.length = kLayers, .n_carries = 1, .in_axes = {0, 0}};
  const Val operands[] = {x, w1, w2};
  const Val h = b.add(OpKind::kScan, p, operands, {block(compute)})[0];
  forward.set_outputs({reduce_sum(h * h, {0, 1}).id()});

  Graph joint = reverse(forward, {.wrt = {1, 2}, .outputs = {0}});
  GraphBuilder update(joint);
  std::vector<ValueId> outputs = {joint.outputs()[0]};
  for (size_t i = 0; i < 2; ++i) {
    const Val w(update, joint.inputs()[i + 1]), g(update, joint.outputs()[i + 1]);
    outputs.push_back((w - g * 0.01).id());
  }
  joint.set_outputs(std::move(outputs));
  return simplify(joint);
}

Program sharded_step(DType compute, const AxisSharding& x, const AxisSharding& w1,
                     const AxisSharding& w2) {
  return {step(compute), {x, w1, w2, whole_sharding(0)}, {std::nullopt, w1, w2}};
}
Program fsdp_step(DType compute) {
  return sharded_step(compute, cut_by({{0}, {}}), cut_by({{}, {0}, {}}), cut_by({{}, {0}, {}}));
}

// Calls visit(graph, node) for all nodes, of nested graphs too.
template <typename Visit>
void for_each_node(const Graph& graph, const Visit& visit) {
  for (const Node& node : graph.nodes()) {
    visit(graph, node);
    for (const GraphPtr& nested : node.graphs) for_each_node(*nested, visit);
  }
}

TEST(Partition, FullyShardedStepGathersWhereItReadsAndScattersGradients) {
  const MeshShape mesh{{"data"}, {4}};
  const Program program = fsdp_step(DType::kBF16);
  const Partitioned local = partition(program.graph, mesh, program.in, program.out);
  const int64_t weight = kWidth * kInner;
  int gathers = 0, scatters = 0;
  for_each_node(local.graph, [&](const Graph& graph, const Node& node) {
    if (!is_collective(node.op)) return;
    const ArrayType &from = graph.type(node.operands[0]), &to = graph.type(node.result());
    if (node.op == OpKind::kAllGather) {
      ++gathers;
      EXPECT_EQ(to.dtype, DType::kBF16) << "gathered in the dtype of computing";
      EXPECT_EQ(to.elems(), weight);
    } else if (node.op == OpKind::kReduceScatter) {
      ++scatters;
      EXPECT_EQ(from.elems(), weight);
      EXPECT_NE(&graph, &local.graph) << "a gradient is scattered in the loop that makes it";
    } else {
      EXPECT_EQ(node.op, OpKind::kAllReduce);
      EXPECT_EQ(from.elems(), 1) << "of the loss alone";
    }
  });
  EXPECT_EQ(gathers, 4);  // each of two, forward and backward
  EXPECT_EQ(scatters, 2);
  // No stack holds gathered parameters: all residuals are parts.
  for_each_node(local.graph, [&](const Graph& graph, const Node& node) {
    if (node.op != OpKind::kScan) return;
    for (int i = 0; i < node.n_results; ++i)
      EXPECT_LE(graph.type(node.result(i)).elems(), kLayers * kTokens * kInner / 4)
          << to_string(graph.type(node.result(i)));
  });
  EXPECT_TRUE(local.notes.empty());
}

TEST(Partition, SumsNarrowProductsInF32OverTheAxesThatWantIt) {
  const MeshShape mesh{{"data"}, {4}};
  const Program program = fsdp_step(DType::kBF16);
  const auto scattered = [&](const PartitionOptions& options) {
    const Partitioned local = partition(program.graph, mesh, program.in, program.out, options);
    std::vector<DType> dtypes;
    for_each_node(local.graph, [&](const Graph& graph, const Node& node) {
      if (node.op == OpKind::kReduceScatter) dtypes.push_back(graph.type(node.result()).dtype);
    });
    return dtypes;
  };
  EXPECT_EQ(scattered({}), (std::vector{DType::kBF16, DType::kBF16}));
  EXPECT_EQ(scattered({.f32_sum_axes = {0}}), (std::vector{DType::kF32, DType::kF32}));
}

TEST(Partition, StepsAreTheWholeProgram) {
  const Program fsdp = fsdp_step(DType::kF32);
  for (int64_t n : {1, 2, 4, 8}) {
    SCOPED_TRACE(n);
    ASSERT_NO_FATAL_FAILURE(expect_whole(fsdp, {{"data"}, {n}}));
  }
  // Tensor parallel: the inner axis on y; and both.
  const MeshShape grid{{"x", "y"}, {2, 4}};
  ASSERT_NO_FATAL_FAILURE(expect_whole(
      sharded_step(DType::kF32, cut_by({{}, {}}), cut_by({{}, {}, {1}}), cut_by({{}, {1}, {}})),
      grid));
  ASSERT_NO_FATAL_FAILURE(expect_whole(
      sharded_step(DType::kF32, cut_by({{0}, {}}), cut_by({{}, {0}, {1}}), cut_by({{}, {1}, {0}})),
      grid));
}

// All that stands behind the partitioner sees an ordinary program; what it lacks is a communicator.
TEST(Partition, LocalProgramsAreCompiledAndSayThatTheyNeedACommunicator) {
  const MeshShape mesh{{"data"}, {4}};
  const Program program = fsdp_step(DType::kBF16);
  const Partitioned local = partition(program.graph, mesh, program.in, program.out);
  const ExecutablePtr compiled = compile(local.graph, {}, 1);
  const ExecutablePtr whole = compile(program.graph, {}, 1);
  EXPECT_LT(compiled->memory_analysis().device().total_bytes,
            whole->memory_analysis().device().total_bytes);
  const DevicePtr device = Device::cpu_with_capacity(int64_t{1} << 24, 1);
  std::vector<DeviceBufferPtr> arguments;
  for (ValueId v : local.graph.inputs()) {
    arguments.push_back(device->allocate(local.graph.type(v).bytes()));
    std::fill_n(arguments.back()->data(), arguments.back()->bytes(), std::byte{0});
  }
  EXPECT_THAT(
      message_of([&] { compiled->run(*device, arguments); }),
      HasSubstr("[all_gather] expected to run on Mesh('data': 4), got one device"));
}

TEST(Partition, SumsPartsBeforeTheyCrossTheMesh) {
  const MeshShape mesh{{"x"}, {4}};
  Graph graph;
  GraphBuilder b(graph);
  const Val x(b, graph.add_input({DType::kF32, {8, 16}}));
  std::vector<AxisSharding> in = {cut_by({{}, {0}})};
  std::optional<Val> all;
  for (int i = 0; i < 3; ++i) {
    const Val w(b, graph.add_input({DType::kF32, {16, 4}}));
    in.push_back(cut_by({{0}, {}}));
    const Val y = matmul(x, w);
    all = all ? *all + y : y;
    if (i == 0) {  // a term that is whole stands between
      all = *all + Val(b, graph.add_input({DType::kF32, {8, 4}}));
      in.push_back(whole_sharding(2));
    }
  }
  graph.set_outputs({sin(*all).id()});
  const Program program{graph, in, {whole_sharding(2)}};
  const Partitioned local = partition(graph, mesh, program.in, program.out);
  EXPECT_EQ(count_ops(local.graph, OpKind::kAllReduce, true), 1);
  expect_whole(program, mesh);
}

TEST(Partition, TensorParallelStepReducesActivationsAlone) {
  const MeshShape mesh{{"model"}, {4}};
  const Program program =
      sharded_step(DType::kF32, cut_by({{}, {}}), cut_by({{}, {}, {0}}), cut_by({{}, {0}, {}}));
  const Partitioned local = partition(program.graph, mesh, program.in, program.out);
  for_each_node(local.graph, [&](const Graph& graph, const Node& node) {
    if (!is_collective(node.op)) return;
    EXPECT_EQ(node.op, OpKind::kAllReduce);
    EXPECT_EQ(graph.type(node.result()).shape, (Shape{kTokens, kWidth}));
  });
  ASSERT_EQ(local.collectives.size(), 1u);
  EXPECT_EQ(local.collectives[0].count, 2 * kLayers);  // forward and backward, once a layer
  EXPECT_EQ(local.collectives[0].bytes, 2 * kLayers * 2 * 0.75 * 4 * kTokens * kWidth);
}

// sin(x w) in a checkpointed region, differentiated; the contracted axis is cut.
TEST(Partition, PoliciesKeepTheSumOfAProductNotItsParts) {
  const MeshShape mesh{{"model"}, {4}};
  auto body = std::make_shared<Graph>();
  GraphBuilder inside(*body);
  const Val xs(inside, body->add_input({DType::kF32, {8, 16}}));
  const Val ws(inside, body->add_input({DType::kF32, {16, 4}}));
  body->set_outputs({sin(sin(matmul(xs, ws))).id()});
  for (const bool saves : {false, true}) {
    SCOPED_TRACE(saves);
    Graph graph;
    GraphBuilder b(graph);
    const Val operands[] = {Val(b, graph.add_input({DType::kF32, {8, 16}})),
                            Val(b, graph.add_input({DType::kF32, {16, 4}}))};
    const CheckpointParams p{saves ? dots_saveable() : nothing_saveable(), true};
    graph.set_outputs({b.add(OpKind::kCheckpoint, p, operands, {body})[0].id()});
    const Graph joint = simplify(reverse(graph, {.wrt = {1}, .outputs = {0}}));
    const Program program{joint,
                          {cut_by({{}, {0}}), cut_by({{0}, {}}), whole_sharding(2)},
                          {whole_sharding(2), cut_by({{0}, {}})}};
    const Partitioned local = partition(joint, mesh, program.in, program.out);
    ASSERT_EQ(count_ops(local.graph, OpKind::kAllReduce, true), 1);
    const Graph kept = realize_residuals(local.graph, nullptr);
    verify(kept);
    EXPECT_EQ(count_ops(kept, OpKind::kAllReduce, true), saves ? 1 : 2);
    EXPECT_EQ(count_ops(kept, OpKind::kDotGeneral, true), saves ? 2 : 3);
  }
}

// Activations lie cut by tokens between products, and by the inner axis within: what an all_reduce
// would send goes as a reduce_scatter and an all_gather, and what a position keeps is a part.
TEST(Partition, ConstraintsCutTheSequenceBetweenProducts) {
  const MeshShape mesh{{"model"}, {4}};
  const auto constrain = [&](const Val& x, std::vector<MeshAxes> axes) {
    return x.builder().add1(OpKind::kReshard, ReshardParams{mesh, cut_by(std::move(axes))}, {x});
  };
  Graph graph;
  GraphBuilder b(graph);
  // Few tokens and wide parameters, so that activations are cheaper to send.
  const Val h(b, graph.add_input({DType::kF32, {8, 8}}));
  const Val w1(b, graph.add_input({DType::kF32, {8, 32}}));
  const Val w2(b, graph.add_input({DType::kF32, {32, 8}}));
  const Val up = constrain(matmul(h, w1), {{}, {0}});
  graph.set_outputs({(h + constrain(matmul(sin(up), w2), {{0}, {}})).id()});
  const Program program{graph, {cut_by({{0}, {}}), cut_by({{}, {0}}), cut_by({{0}, {}})}, {{}}};
  const Partitioned local = partition(graph, mesh, program.in, program.out);
  EXPECT_EQ(local.out[0], cut_by({{0}, {}}));
  EXPECT_EQ(count_ops(local.graph, OpKind::kAllGather, true), 1);
  EXPECT_EQ(count_ops(local.graph, OpKind::kReduceScatter, true), 1);
  EXPECT_EQ(count_ops(local.graph, OpKind::kAllReduce, true), 0);
  expect_whole(program, mesh);
}

// Parameters on the host, a part on each position: a part is moved to the device, then gathered
// there.
TEST(Partition, PartsOffTheDeviceAreMovedBeforeTheyAreGathered) {
  const MeshShape mesh{{"data"}, {4}};
  Graph graph;
  GraphBuilder b(graph);
  const Val x(b, graph.add_input({DType::kF32, {kTokens, kWidth}}));
  const Val w(b, graph.add_input({DType::kF32, {kWidth, kInner}, MemoryKind::kPinnedHost}));
  graph.set_outputs({matmul(x, device_put(w, MemoryKind::kDevice)).id()});
  const Program program{graph, {cut_by({{0}, {}}), cut_by({{0}, {}})}, {{}}};
  const Partitioned local = partition(graph, mesh, program.in, program.out);
  for (const Node& node : local.graph.nodes()) {
    const ArrayType& type = local.graph.type(node.result());
    if (node.op == OpKind::kDevicePut) {
      EXPECT_EQ(to_string(type), "f32[2,16]");
    }
    EXPECT_EQ(type.kind, MemoryKind::kDevice);
  }
  EXPECT_EQ(count_ops(local.graph, OpKind::kDevicePut, true), 1);
  EXPECT_EQ(count_ops(local.graph, OpKind::kAllGather, true), 1);
  expect_whole(program, mesh);
}

// ---- shard_map ----

// x w with the contracted axis cut, summed by hand.
Graph manual_product(const MeshShape& mesh) {
  Graph graph;
  GraphBuilder b(graph);
  const Val x(b, graph.add_input({DType::kF32, {8, 16}}));
  const Val w(b, graph.add_input({DType::kF32, {16, 4}}));
  const auto enter = [&](const Val& v, std::vector<MeshAxes> axes) {
    return b.add1(OpKind::kFullToShard, ReshardParams{mesh, cut_by(std::move(axes))}, {v});
  };
  const Val part = matmul(enter(x, {{}, {0}}), enter(w, {{0}, {}}));
  const Val sum = b.add1(OpKind::kAllReduce, CollectiveParams{.mesh = mesh, .axes = {0}}, {part});
  const Val whole =
      b.add1(OpKind::kShardToFull, ReshardParams{mesh, whole_sharding(2)}, {sin(sum)});
  graph.set_outputs({whole.id()});
  return graph;
}

TEST(Partition, BodiesOfShardMapStayAsTheyAre) {
  const MeshShape mesh{{"x", "y"}, {4, 2}};
  Graph plain;
  GraphBuilder b(plain);
  const Val x(b, plain.add_input({DType::kF32, {8, 16}}));
  const Val w(b, plain.add_input({DType::kF32, {16, 4}}));
  plain.set_outputs({sin(matmul(x, w)).id()});
  const ReverseSpec spec{.wrt = {0, 1}, .outputs = {0}};
  const Graph want = reverse(plain, spec), got = reverse(manual_product(mesh), spec);
  const std::vector<Bytes> inputs = random_inputs(want);
  const std::vector<Bytes> expected = testing::evaluate(want, inputs);
  for (const AxisSharding& of_x : {whole_sharding(2), cut_by({{1}, {0}}), cut_by({{0}, {1}})}) {
    const Program program{got, {of_x, whole_sharding(2), whole_sharding(2)}, {{}, {}, {}}};
    const Partitioned local = partition(got, mesh, program.in, program.out);
    const std::vector<Bytes> results = run_on(program, local, mesh, inputs);
    for (size_t o = 0; o < expected.size(); ++o)
      ASSERT_NO_FATAL_FAILURE(
          expect_near(want.type(want.outputs()[o]), results[o], expected[o], 1e-5))
          << "output " << o;
  }
}

TEST(Partition, ResultsOfShardMapMustNotDifferAlongAxesThatTheyLeaveOut) {
  const MeshShape mesh{{"x", "y"}, {4, 2}};
  Graph graph;
  GraphBuilder b(graph);
  const Val x(b, graph.add_input({DType::kF32, {8, 16}}));
  const Val part = b.add1(OpKind::kFullToShard, ReshardParams{mesh, cut_by({{1}, {0}})}, {x});
  const Val sum = b.add1(OpKind::kAllReduce, CollectiveParams{.mesh = mesh, .axes = {0}}, {part});
  const auto leave = [&](const Val& v, std::vector<MeshAxes> axes) {
    Graph copy = graph;
    GraphBuilder builder(copy);
    const ReshardParams p{mesh, cut_by(std::move(axes))};
    copy.set_outputs({builder.add1(OpKind::kShardToFull, p, {Val(builder, v.id())}).id()});
    return message_of([&] {
      partition(copy, mesh, std::vector{cut_by({{}, {}})},
                std::vector{std::optional<AxisSharding>()});
    });
  };
  EXPECT_EQ(leave(sum, {{1}, {}}), "nothing was thrown");
  EXPECT_EQ(leave(part, {{1}, {0}}), "nothing was thrown");
  EXPECT_THAT(
      leave(part, {{1}, {}}),
      HasSubstr("[shard_map] expected a result that is the same along mesh axis 'x', which its "
                "specification leaves out, got one that may differ; reduce it over 'x', or "
                "name the axis in out_specs"));
  EXPECT_THAT(leave(sum, {{}, {}}), HasSubstr("mesh axis 'y'"));
}

// ---- Numbers ----

TEST(Partition, RandomNumbersAreTheSameOnEveryMesh) {
  Graph graph;
  GraphBuilder b(graph);
  const Val key(b, graph.add_input({DType::kU32, {2}}));
  const Val bits = random_bits(key, constant_int(b, DType::kI64, 5), {8, 4, 8});
  const Val counts = convert(iota(b, {DType::kF32, {8, 4, 8}}, 2), DType::kU32);
  graph.set_outputs({(bits + counts).id()});
  const std::vector<Bytes> inputs = random_inputs(graph);
  const std::vector<Bytes> want = testing::evaluate(graph, inputs);
  const MeshShape mesh{{"x", "y"}, {2, 4}};
  for (const AxisSharding& out :
       {cut_by({{0}, {}, {}}), cut_by({{}, {1}, {}}), cut_by({{}, {}, {1}}), cut_by({{0}, {}, {1}}),
        cut_by({{1}, {}, {0}}), cut_by({{}, {}, {1, 0}}), cut_by({{0}, {1}, {}})}) {
    SCOPED_TRACE(to_string(out, mesh));
    const Program program{graph, {whole_sharding(1)}, {out}};
    const Partitioned local = partition(graph, mesh, program.in, program.out);
    EXPECT_TRUE(local.collectives.empty()) << "made without traffic";
    EXPECT_EQ(run_on(program, local, mesh, inputs), want);
  }
}

// ---- Errors and notes ----

TEST(Partition, RefusesACutScannedAxis) {
  Program program = fsdp_step(DType::kF32);
  program.in[1] = cut_by({{0}, {}, {}});
  program.out = {std::nullopt, std::nullopt, std::nullopt};
  const MeshShape mesh{{"data"}, {3}};
  program.in[0] = program.in[0] = whole_sharding(2);
  program.in[2] = whole_sharding(3);
  EXPECT_THAT(
      message_of([&] { partition(program.graph, mesh, program.in, program.out); }),
      HasSubstr("[scan] expected axis 0 of f32[3,8,16] to be whole, since the loop goes over "
                "it; it is cut as ['data', None, None]. Gathering it would take 1.00 KiB "
                "more a position; cut another axis of w1"));
}

TEST(Partition, NotesWhatStaysWhole) {
  Program program = fsdp_step(DType::kF32);
  program.in[1] = whole_sharding(3);
  program.out = {std::nullopt, std::nullopt, std::nullopt};
  const MeshShape mesh{{"data"}, {4}};
  PartitionOptions options{.least_noted_bytes = 1024};
  const Partitioned local = partition(program.graph, mesh, program.in, program.out, options);
  ASSERT_FALSE(local.notes.empty());
  bool found = false;
  for (const ShardingNote& note : local.notes)
    found |= note.source == "w1" && note.bytes == 4 * kLayers * kWidth * kInner &&
             note.achievable_bytes == kLayers * kWidth * kInner;
  EXPECT_TRUE(found);
  options.strict = true;
  EXPECT_THAT(
      message_of([&] { partition(program.graph, mesh, program.in, program.out, options); }),
      HasSubstr("f32[3,8,16] takes 1.50 KiB a position at w1; one more mesh axis would make that "
                "384 B"));
}

TEST(Partition, RefusesShardingsThatDoNotFit) {
  const Program program = fsdp_step(DType::kF32);
  const MeshShape mesh{{"data"}, {3}};
  EXPECT_THAT(message_of([&] { partition(program.graph, mesh, program.in, program.out); }),
              HasSubstr("[partition] input 0: axis 0 of f32[64,8] is not divisible into 3 parts "
                        "(mesh axes 'data'); the nearest divisible size is 63 or 66"));
}

// ---- Large meshes ----

int64_t size_of(const Graph& graph) {
  int64_t n = static_cast<int64_t>(graph.n_nodes());
  for (const Node& node : graph.nodes())
    for (const GraphPtr& nested : node.graphs) n += size_of(*nested);
  return n;
}

// A product over a stack whose axes 1024 divides.
Graph wide_step() {
  Graph forward;
  GraphBuilder b(forward);
  Val x(b, forward.add_input({DType::kF32, {4096, 2048}}));
  std::vector<Val> w;
  for (int i = 0; i < 20; ++i) w.emplace_back(b, forward.add_input({DType::kF32, {2048, 2048}}));
  for (const Val& v : w) x = sin(matmul(x, v)) + x;
  forward.set_outputs({reduce_sum(x, {0, 1}).id()});
  std::vector<int> wrt;
  for (int i = 0; i < 20; ++i) wrt.push_back(i + 1);
  return simplify(reverse(forward, {.wrt = wrt, .outputs = {0}}));
}

TEST(Partition, CostsNoMoreOnALargeMesh) {
  const Graph graph = wide_step();
  std::vector<AxisSharding> in(21, cut_by({{0}, {}}));
  in.push_back(whole_sharding(0));
  const std::vector<std::optional<AxisSharding>> out(graph.outputs().size());
  const auto run = [&](int64_t n) {
    double best = 1e9;
    int64_t size = 0;
    for (int round = 0; round < 5; ++round) {
      const auto start = std::chrono::steady_clock::now();
      size = size_of(partition(graph, {{"data"}, {n}}, in, out).graph);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      best = std::min(best, took.count());
    }
    return std::pair(size, best);
  };
  const auto [small, small_s] = run(8);
  const auto [large, large_s] = run(1024);
  EXPECT_EQ(small, large);
  RecordProperty("seconds_of_8", fmt::format("{}", small_s));
  RecordProperty("seconds_of_1024", fmt::format("{}", large_s));
}

}  // namespace
}  // namespace stow
