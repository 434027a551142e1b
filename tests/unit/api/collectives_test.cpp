// What several positions do together: values, gradients, errors of collectives and of resharding.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "stowage/autodiff/reverse.h"
#include "stowage/ir/parse.h"
#include "stowage/ir/print.h"
#include "stowage/ops/build.h"
#include "stowage/ops/verify.h"
#include "stowage/passes/reshard.h"
#include "tests/support/evaluate_on_mesh.h"
#include "tests/support/message_of.h"

namespace stow {
namespace {

using testing::Bytes;
using ::testing::HasSubstr;
using testing::PerPosition;

std::vector<double> numbers(const Bytes& bytes) {
  std::vector<double> values(bytes.size() / sizeof(double));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}
Bytes bytes_of(const std::vector<double>& values) {
  Bytes bytes(values.size() * sizeof(double));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

const ArrayType kType{DType::kF64, {6, 4}};

Graph one_op(OpKind op, const CollectiveParams& p) {
  Graph graph;
  GraphBuilder b(graph);
  const Val x(b, graph.add_input(kType));
  graph.set_outputs({b.add1(op, p, {x}).id()});
  return graph;
}

struct Case {
  std::string name;
  OpKind op;
  CollectiveParams params;
};

std::vector<Case> cases() {
  const MeshShape three{{"x"}, {3}}, grid{{"x", "y"}, {3, 2}};
  std::vector<Case> all;
  for (const MeshShape& mesh : {three, grid}) {
    const std::string of = mesh.rank() == 1 ? " of 3" : " of rows";
    all.push_back({"gather" + of, OpKind::kAllGather, {.mesh = mesh, .axes = {0}, .axis = 1}});
    all.push_back({"scatter" + of, OpKind::kReduceScatter, {.mesh = mesh, .axes = {0}, .axis = 0}});
    for (ReduceKind kind : {ReduceKind::kSum, ReduceKind::kMax, ReduceKind::kMin})
      all.push_back({std::string(reduce_kind_name(kind)) + of,
                     OpKind::kAllReduce,
                     {.mesh = mesh, .axes = {0}, .kind = kind}});
    all.push_back({"to all" + of,
                   OpKind::kAllToAll,
                   {.mesh = mesh, .axes = {0}, .axis = 0, .concat_axis = 1}});
    all.push_back({"same axis" + of, OpKind::kAllToAll, {.mesh = mesh, .axes = {0}, .axis = 0}});
    all.push_back(
        {"permute" + of, OpKind::kPermute, {.mesh = mesh, .axes = {0}, .pairs = {0, 1, 1, 2}}});
  }
  all.push_back({"gather of both", OpKind::kAllGather, {.mesh = grid, .axes = {1, 0}, .axis = 0}});
  all.push_back(
      {"scatter of both", OpKind::kReduceScatter, {.mesh = grid, .axes = {0, 1}, .axis = 0}});
  all.push_back({"sum of both", OpKind::kAllReduce, {.mesh = grid, .axes = {0, 1}}});
  return all;
}

// The loss is the sum over positions of products with seeds; its gradient is that of each position.
TEST(Collectives, HaveTheGradientsOfFiniteDifferences) {
  std::mt19937_64 rng(5);
  const auto draw = [&](size_t n) {
    std::vector<double> values(n);
    for (double& x : values) x = std::uniform_real_distribution(-1.0, 1.0)(rng);
    return values;
  };
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    const MeshShape& mesh = c.params.mesh;
    const Graph graph = one_op(c.op, c.params);
    const Graph joint = reverse(graph, {.wrt = {0}, .outputs = {0}});
    verify(joint);
    const auto n_out = static_cast<size_t>(graph.type(graph.outputs()[0]).elems());
    PerPosition inputs, joint_inputs;
    std::vector<std::vector<double>> seeds;
    for (int64_t d = 0; d < mesh.size(); ++d) {
      inputs.push_back({bytes_of(draw(static_cast<size_t>(kType.elems())))});
      seeds.push_back(draw(n_out));
      joint_inputs.push_back({inputs.back()[0], bytes_of(seeds.back())});
    }
    const auto loss = [&](const PerPosition& at) {
      const PerPosition out = testing::evaluate_on_mesh(graph, mesh, at);
      double sum = 0;
      for (size_t d = 0; d < out.size(); ++d) {
        const std::vector<double> y = numbers(out[d][0]);
        for (size_t i = 0; i < y.size(); ++i) sum += y[i] * seeds[d][i];
      }
      return sum;
    };
    const PerPosition results = testing::evaluate_on_mesh(joint, mesh, joint_inputs);
    for (size_t d = 0; d < inputs.size(); ++d) {
      const std::vector<double> gradient = numbers(results[d][1]), x = numbers(inputs[d][0]);
      for (size_t i = 0; i < x.size(); i += 5) {
        constexpr double kStep = 1e-6;
        double losses[2];
        for (int side = 0; side < 2; ++side) {
          std::vector<double> moved = x;
          moved[i] += side ? -kStep : kStep;
          PerPosition at = inputs;
          at[d][0] = bytes_of(moved);
          losses[side] = loss(at);
        }
        EXPECT_NEAR(gradient[i], (losses[0] - losses[1]) / (2 * kStep), 1e-7)
            << "position " << d << ", element " << i;
      }
    }
  }
}

// Terms whose sum depends on the order: ((a + b) + (c + d)) + e for five.
TEST(Collectives, SumByTheBalancedTree) {
  const MeshShape mesh{{"x"}, {5}};
  Graph graph;
  GraphBuilder b(graph);
  const Val x(b, graph.add_input({DType::kF64, {1}}));
  graph.set_outputs(
      {b.add1(OpKind::kAllReduce, CollectiveParams{.mesh = mesh, .axes = {0}}, {x}).id()});
  const std::vector<double> terms = {1e16, 1, -1e16, 3, 0.5};
  PerPosition inputs;
  for (double term : terms) inputs.push_back({bytes_of({term})});
  const double want = ((terms[0] + terms[1]) + (terms[2] + terms[3])) + terms[4];
  ASSERT_NE(want, (((terms[0] + terms[1]) + terms[2]) + terms[3]) + terms[4]);
  for (const auto& out : testing::evaluate_on_mesh(graph, mesh, inputs))
    EXPECT_EQ(numbers(out[0])[0], want);
}

std::vector<AxisSharding> all_shardings(const ArrayType& type, const MeshShape& mesh) {
  std::vector<AxisSharding> all = {whole_sharding(type.shape.rank())};
  for (size_t from = 0; from < all.size(); ++from)
    for (int axis = 0; axis < mesh.rank(); ++axis) {
      if (all[from].cuts_with(axis)) continue;
      for (size_t i = 0; i < all[from].axes.size(); ++i) {
        AxisSharding s = all[from];
        s.axes[i].push_back(axis);
        if (!sharding_fault(type, s, mesh) && std::find(all.begin(), all.end(), s) == all.end())
          all.push_back(s);
      }
    }
  return all;
}

Graph resharding(const ArrayType& type, const ReshardPlan& plan, const AxisSharding& from,
                 const MeshShape& mesh) {
  Graph graph;
  GraphBuilder b(graph);
  const Val x(b, graph.add_input(local_type(type, from, mesh)));
  const auto index = [&](const MeshAxes& axes) {
    return b.add1(OpKind::kAxisIndex, CollectiveParams{.mesh = mesh, .axes = axes}, {});
  };
  graph.set_outputs({apply_reshard(plan, type, x, mesh, index).id()});
  verify(graph);
  return graph;
}

TEST(Reshard, GoesFromEverySharingToEveryOther) {
  const ArrayType type{DType::kI32, {8, 4, 4}};
  const MeshShape mesh{{"x", "y"}, {2, 2}};
  Bytes whole(static_cast<size_t>(type.bytes()));
  for (size_t i = 0; i < whole.size(); ++i) whole[i] = static_cast<std::byte>(i * 7);
  int n = 0;
  for (const AxisSharding& from : all_shardings(type, mesh))
    for (const AxisSharding& to : all_shardings(type, mesh)) {
      SCOPED_TRACE(to_string(from, mesh) + " -> " + to_string(to, mesh));
      const ReshardPlan plan = plan_reshard(type, from, to, mesh);
      EXPECT_EQ(plan.steps.empty(), from == to);
      PerPosition inputs;
      for (const Bytes& part : testing::cut(type, whole, from, mesh)) inputs.push_back({part});
      const PerPosition out =
          testing::evaluate_on_mesh(resharding(type, plan, from, mesh), mesh, inputs);
      const std::vector<Bytes> want = testing::cut(type, whole, to, mesh);
      for (size_t d = 0; d < want.size(); ++d) ASSERT_EQ(out[d][0], want[d]) << "position " << d;
      ++n;
    }
  EXPECT_GT(n, 300);
}

std::vector<ReshardOp> ops_of(const ReshardPlan& plan) {
  std::vector<ReshardOp> ops;
  for (const ReshardStep& step : plan.steps) ops.push_back(step.op);
  return ops;
}

TEST(Reshard, SendsNoMoreThanItMust) {
  const ArrayType type{DType::kF32, {8, 8}};
  const MeshShape mesh{{"x", "y"}, {4, 2}};
  const auto plan = [&](std::vector<MeshAxes> from, std::vector<MeshAxes> to, MeshAxes partial = {},
                        ReduceKind kind = ReduceKind::kSum) {
    return plan_reshard(type, {std::move(from), std::move(partial), kind}, {std::move(to)}, mesh);
  };
  using Op = ReshardOp;
  using Ops = std::vector<ReshardOp>;
  // From rows to columns without the whole array anywhere: 64 bytes, of which a quarter stays.
  EXPECT_EQ(ops_of(plan({{0}, {}}, {{}, {0}})), (Ops{Op::kAllToAll}));
  EXPECT_EQ(plan({{0}, {}}, {{}, {0}}).bytes, 48);
  EXPECT_FALSE(plan({{0}, {}}, {{}, {0}}).grows);
  // Slices are free and come first.
  EXPECT_EQ(ops_of(plan({{}, {}}, {{0}, {1}})), (Ops{Op::kSlice, Op::kSlice}));
  EXPECT_EQ(plan({{}, {}}, {{0}, {1}}).bytes, 0);
  EXPECT_EQ(ops_of(plan({{0}, {}}, {{}, {1}})), (Ops{Op::kSlice, Op::kAllGather}));
  // A sum whose part is wanted is never reduced whole.
  EXPECT_EQ(ops_of(plan({{}, {}}, {{0}, {}}, {0})), (Ops{Op::kReduceScatter}));
  EXPECT_EQ(plan({{}, {}}, {{0}, {}}, {0}).bytes, 192);
  EXPECT_EQ(ops_of(plan({{}, {}}, {{}, {}}, {0})), (Ops{Op::kAllReduce}));
  EXPECT_EQ(plan({{}, {}}, {{}, {}}, {0}).bytes, 384);
  EXPECT_EQ(ops_of(plan({{}, {}}, {{}, {0}}, {0, 1})), (Ops{Op::kReduceScatter, Op::kAllReduce}));
  EXPECT_EQ(ops_of(plan({{}, {}}, {{0}, {}}, {0}, ReduceKind::kMax)),
            (Ops{Op::kAllReduce, Op::kSlice}));
  // One mesh axis in the place of another: no step but a gather leads there, and it says so.
  EXPECT_TRUE(plan({{0}, {}}, {{1, 0}, {}}).grows);
}

// Tree sums over a grid have the bits of sums over its rows of sums over its columns.
TEST(Reshard, ReducesAGroupAsItsFactors) {
  const ArrayType type{DType::kF32, {16}};
  const MeshShape line{{"x"}, {8}}, grid{{"x", "y"}, {2, 4}};
  std::mt19937_64 rng(9);
  PerPosition inputs;
  for (int d = 0; d < 8; ++d) {
    Bytes bytes(64);
    for (size_t i = 0; i < 16; ++i) {
      const float x = std::uniform_real_distribution(-1.0f, 1.0f)(rng);
      std::memcpy(bytes.data() + 4 * i, &x, 4);
    }
    inputs.push_back({bytes});
  }
  const auto reduced = [&](const MeshShape& mesh, std::vector<MeshAxes> groups) {
    Graph graph;
    GraphBuilder b(graph);
    Val x(b, graph.add_input(type));
    for (const MeshAxes& axes : groups)
      x = b.add1(OpKind::kAllReduce, CollectiveParams{.mesh = mesh, .axes = axes}, {x});
    graph.set_outputs({x.id()});
    return testing::evaluate_on_mesh(graph, mesh, inputs);
  };
  const PerPosition want = reduced(line, {{0}});
  EXPECT_EQ(reduced(grid, {{0, 1}}), want);
  EXPECT_EQ(reduced(grid, {{1}, {0}}), want);
  EXPECT_NE(reduced(grid, {{0}, {1}}), want);  // the major axis first is another tree
}

TEST(Collectives, RefuseWhatCannotBe) {
  const MeshShape mesh{{"x", "y"}, {4, 2}};
  const auto message = [&](OpKind op, const CollectiveParams& p) {
    return message_of([&] { one_op(op, p); });
  };
  EXPECT_THAT(message(OpKind::kAllGather, {.mesh = mesh, .axes = {2}}),
              HasSubstr("[all_gather] mesh axis 2 does not exist in Mesh('x': 4, 'y': 2)"));
  EXPECT_THAT(message(OpKind::kAllReduce, {.mesh = mesh, .axes = {1, 1}}),
              HasSubstr("[all_reduce] mesh axis 'y' is named twice"));
  EXPECT_THAT(message(OpKind::kReduceScatter, {.mesh = mesh, .axes = {0}, .axis = 0}),
              HasSubstr("axis 0 of f64[6,4] is not divisible into 4 parts; the next divisible size "
                        "is 8"));
  EXPECT_THAT(message(OpKind::kAllReduce, {.mesh = mesh, .axes = {0}, .kind = ReduceKind::kAnd}),
              HasSubstr("needs a bool or integer dtype, got f64[6,4]"));
  EXPECT_THAT(message(OpKind::kPermute, {.mesh = mesh, .axes = {0}, .pairs = {0, 1, 2, 1}}),
              HasSubstr("index 1 is a destination twice"));
  EXPECT_THAT(message(OpKind::kPermute, {.mesh = mesh, .axes = {0}, .pairs = {0, 4}}),
              HasSubstr("index 4 is out of range for a group of 4"));
}

TEST(Collectives, PrintAndParse) {
  Graph graph;
  GraphBuilder b(graph);
  const MeshShape mesh{{"x", "a b\""}, {3, 2}};
  Val x(b, graph.add_input(kType));
  for (const Case& c : cases())
    if (c.op == OpKind::kPermute || c.op == OpKind::kAllReduce) x = b.add1(c.op, c.params, {x});
  x = b.add1(OpKind::kReshard, ReshardParams{mesh, {.axes = {{1, 0}, {}}}}, {x});
  const Val part = b.add1(OpKind::kFullToShard, ReshardParams{mesh, {.axes = {{}, {1}}}}, {x});
  graph.set_outputs({part.id()});
  const std::string text = print(graph);
  const Result<GraphPtr> again = parse_graph(text, "test", nullptr);
  ASSERT_TRUE(again.ok()) << again.error();
  EXPECT_EQ(print(**again), text);
  EXPECT_THAT(text, HasSubstr(R"(mesh=["x":3,"a b\"":2], sharding=[[1,0],[]])"));
}

}  // namespace
}  // namespace stow
