// Random programs on random meshes: what the positions compute together is the whole program,
// evaluated with the reference kernels, and compiled and run under several memory plans.
//
// STOW_FUZZ_COUNT programs (80, or 34 that run) from STOW_FUZZ_SEED (1) on.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

#include "stowage/ir/print.h"
#include "stowage/ops/verify.h"
#include "stowage/passes/partition.h"
#include "stowage/passes/residuals.h"
#include "tests/fuzz/child_process.h"
#include "tests/fuzz/near.h"
#include "tests/fuzz/random_program.h"
#include "tests/support/check_lives.h"
#include "tests/support/crash_note.h"
#include "tests/support/evaluate_on_mesh.h"
#include "tests/support/execute.h"
#include "tests/support/execute_on_mesh.h"

namespace stow {
namespace {

using testing::Bytes;
using testing::environment;
using testing::PerPosition;
using testing::RandomProgram;
using Rng = std::mt19937_64;

size_t below(Rng& rng, size_t n) {
  return std::uniform_int_distribution<size_t>(0, n - 1)(rng);
}

MeshShape random_mesh(Rng& rng) {
  static const std::vector<MeshShape> kMeshes = {
      {{"x"}, {1}},         {{"x"}, {2}},         {{"x"}, {3}},
      {{"x"}, {4}},         {{"x", "y"}, {2, 2}}, {{"x", "y"}, {2, 4}},
      {{"x", "y"}, {4, 2}}, {{"x", "y"}, {3, 2}}, {{"x", "y", "z"}, {2, 2, 2}},
      {{"x", "y"}, {1, 8}},
  };
  return kMeshes[below(rng, kMeshes.size())];
}

// Each mesh axis goes to an axis of the array that it divides, or to none.
AxisSharding random_sharding(Rng& rng, const ArrayType& type, const MeshShape& mesh) {
  AxisSharding s = whole_sharding(type.shape.rank());
  std::vector<int> axes(static_cast<size_t>(mesh.rank()));
  for (size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int>(i);
  std::shuffle(axes.begin(), axes.end(), rng);
  for (int axis : axes) {
    if (s.rank() == 0 || below(rng, 4) == 0) continue;
    const size_t at = below(rng, static_cast<size_t>(s.rank()));
    s.axes[at].push_back(axis);
    if (sharding_fault(type, s, mesh)) s.axes[at].pop_back();
  }
  return s;
}

bool sums_floats(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    for (const GraphPtr& nested : node.graphs)
      if (sums_floats(*nested)) return true;
    if (node.op != OpKind::kReduceScatter && node.op != OpKind::kAllReduce) continue;
    if (node.as<CollectiveParams>().kind == ReduceKind::kSum &&
        is_float(graph.type(node.operands[0]).dtype))
      return true;
  }
  return false;
}

struct Tried {
  std::string fault;
  bool refused = false, bitwise = false, compared = false;
  int64_t n_collectives = 0;
};

Tried try_program(const RandomProgram& program, const Graph& graph, const MeshShape& mesh,
                  const std::vector<AxisSharding>& in,
                  const std::vector<std::optional<AxisSharding>>& out, bool lives) {
  Tried tried;
  Partitioned local;
  try {
    local = partition(graph, mesh, in, out);
  } catch (const TraceError& e) {
    tried.refused = std::string(e.what()).find("since the loop goes over it") != std::string::npos;
    if (!tried.refused) tried.fault = e.what();
    return tried;
  }
  testing::set_crash_note(print(graph) + to_string(mesh) + "\n" + print(local.graph));
  try {
    verify(local.graph);
  } catch (const TraceError& e) {
    tried.fault = e.what();
    return tried;
  }
  PerPosition inputs(static_cast<size_t>(mesh.size()));
  for (size_t i = 0; i < in.size(); ++i) {
    const auto parts = testing::cut(graph.type(graph.inputs()[i]), program.inputs[i], in[i], mesh);
    for (size_t d = 0; d < inputs.size(); ++d) inputs[d].push_back(parts[d]);
  }
  const std::vector<Bytes> want = testing::evaluate(graph, program.inputs);
  const PerPosition got = testing::evaluate_on_mesh(local.graph, mesh, inputs);
  // What is recomputed or kept changes no bit, collectives among it.
  if (lives)
    if (tried.fault = testing::check_lives_of_all(local.graph, program.donated);
        !tried.fault.empty())
      return tried;
  const Graph realized = realize_residuals(local.graph, nullptr);
  verify(realized);
  if (testing::evaluate_on_mesh(realized, mesh, inputs) != got) {
    tried.fault = "other bits with residuals realized";
    return tried;
  }
  tried.bitwise = !sums_floats(local.graph);
  tried.compared = tried.bitwise || program.smooth;
  for (const CollectiveCount& c : local.collectives) tried.n_collectives += c.count;
  std::vector<Bytes> wholes;
  for (size_t o = 0; o < want.size(); ++o) {
    std::vector<Bytes> parts;
    for (const auto& outputs : got) parts.push_back(outputs[o]);
    const ArrayType& type = graph.type(graph.outputs()[o]);
    const auto whole = testing::join(type, parts, local.out[o], mesh);
    if (!whole) {
      tried.fault = fmt::format("copies of a part of output {} differ", o);
      return tried;
    }
    if (tried.bitwise && *whole != want[o])
      tried.fault = fmt::format("output {} has other bits, no sum was cut", o);
    wholes.push_back(*whole);
  }
  // Programs that compare or round make much of the last bit of a sum.
  if (tried.fault.empty() && !tried.bitwise && program.smooth)
    tried.fault = testing::compare_loosely(graph, program.inputs, wholes);
  return tried;
}

struct Case {
  MeshShape mesh;
  std::vector<AxisSharding> in;
  std::vector<std::optional<AxisSharding>> out;
};

Case random_case(Rng& rng, const Graph& graph) {
  Case c{random_mesh(rng), {}, {}};
  for (ValueId v : graph.inputs()) c.in.push_back(random_sharding(rng, graph.type(v), c.mesh));
  for (ValueId v : graph.outputs()) {
    c.out.emplace_back();
    if (below(rng, 2) == 0) c.out.back() = random_sharding(rng, graph.type(v), c.mesh);
  }
  return c;
}

// Runs the program on threads, one a position, under six plans. Empty if all that was promised
// holds.
struct Ran {
  bool any = false;
  int64_t n_started = 0;  // collectives beside computation, of all plans
};
std::string run_case(const RandomProgram& program, const Case& c, Ran& ran) {
  const Graph& graph = program.graph;
  CompileOptions options{.donated = program.donated};
  options.mesh = std::make_shared<const MeshOptions>(MeshOptions{c.mesh, c.in, c.out, {}});
  std::vector<CompileOptions> plans(6, options);
  plans[1].fuse = false;
  plans[2].reuse = false;
  plans[3].transfers_ahead = 0;
  plans[3].tile_bytes = 32;
  plans[4].capacities = {1, 1, 1};
  if (program.differentiated)
    plans[4].override_policy = testing::random_policy(graph.n_nodes() + 4);
  // Room for all that can run ahead.
  plans[5].capacities[0] = int64_t{1} << 34;
  constexpr std::array kTimings = {StreamTiming::kConcurrent, StreamTiming::kAtWait,
                                   StreamTiming::kAtStart};
  testing::PerPosition first;
  for (size_t i = 0; i < plans.size(); ++i) {
    testing::MeshExecution e;
    try {
      e = testing::execute_on_mesh(graph, plans[i], program.inputs, 1, i % 2 == 1,
                                   kTimings[(i + program.inputs.size()) % kTimings.size()]);
    } catch (const TraceError& error) {
      if (std::string_view(error.what()).find("since the loop goes over it") !=
          std::string_view::npos)
        return "";
      return error.what();
    }
    ran.any = true;
    ran.n_started += e.n_started;
    if (!e.fault.empty()) return fmt::format("plan {}: {}", i, e.fault);
    if (i == 0) first = e.outputs;
    if (e.outputs != first) return fmt::format("plan {} has other bits", i);
    if (i > 0) continue;
    bool sums = false;
    for (const CollectiveCount& count : e.collectives)
      sums = sums || count.op == OpKind::kReduceScatter || count.op == OpKind::kAllReduce;
    const testing::Execution whole = testing::execute(
        graph, {.donated = program.donated, .fuse = false, .reuse = false}, program.inputs, 1);
    std::vector<Bytes> wholes;
    for (size_t o = 0; o < graph.outputs().size(); ++o) {
      std::vector<Bytes> parts;
      for (const auto& outputs : e.outputs) parts.push_back(outputs[o]);
      const auto joined =
          testing::join(graph.type(graph.outputs()[o]), parts, e.out[o], c.mesh);
      if (!joined) return fmt::format("copies of a part of output {} differ", o);
      if (!sums && *joined != whole.outputs[o])
        return fmt::format("output {} has other bits, no sum was cut", o);
      wholes.push_back(*joined);
    }
    // Programs that compare or round make much of the last bit of a sum.
    if (sums && program.smooth)
      if (std::string fault = testing::compare_loosely(graph, program.inputs, wholes);
          !fault.empty())
        return fault;
  }
  return "";
}

TEST(PartitionFuzz, EveryPlanOfAMeshIsExactAndKeepsTheBits) {
  const uint64_t first = environment("STOW_FUZZ_SEED", 1),
                 count = environment("STOW_FUZZ_COUNT", 34);
  int n_ran = 0, n_started = 0, n_faults = 0;
  for (uint64_t seed = first; seed < first + count && n_faults < 10; ++seed) {
    const RandomProgram program = testing::random_program(seed);
    Rng rng(seed + 1000);
    for (int round = 0; round < 3; ++round) {
      const Case c = random_case(rng, program.graph);
      testing::set_crash_note(fmt::format("seed {}, round {} on {}\n{}", seed, round,
                                          to_string(c.mesh), print(program.graph)));
      Ran ran;
      const std::string fault = run_case(program, c, ran);
      EXPECT_EQ(fault, "") << "seed " << seed << ", round " << round << " on " << to_string(c.mesh);
      n_ran += ran.any;
      n_started += ran.n_started > 0;
      n_faults += !fault.empty();
    }
  }
  EXPECT_GT(n_ran, static_cast<int>(2 * count));
  EXPECT_GT(n_started, static_cast<int>(count / 2));
}

TEST(PartitionFuzz, PositionsGiveTheWholeProgram) {
  const uint64_t first = environment("STOW_FUZZ_SEED", 1),
                 count = environment("STOW_FUZZ_COUNT", 80);
  int refused = 0, bitwise = 0, compared = 0, communicating = 0, faults = 0;
  for (uint64_t seed = first; seed < first + count && faults < 10; ++seed) {
    const RandomProgram program = testing::random_program(seed);
    Rng rng(seed);
    for (int round = 0; round < 3; ++round) {
      const MeshShape mesh = random_mesh(rng);
      std::vector<AxisSharding> in;
      std::vector<std::optional<AxisSharding>> out;
      for (ValueId v : program.graph.inputs())
        in.push_back(random_sharding(rng, program.graph.type(v), mesh));
      for (ValueId v : program.graph.outputs()) {
        out.emplace_back();
        if (below(rng, 2) == 0) out.back() = random_sharding(rng, program.graph.type(v), mesh);
      }
      const Tried tried = try_program(program, program.graph, mesh, in, out, seed % 4 == 0);
      refused += tried.refused;
      bitwise += tried.bitwise;
      compared += tried.compared;
      communicating += tried.n_collectives > 0;
      EXPECT_EQ(tried.fault, "") << "seed " << seed << ", round " << round << " on "
                                 << to_string(mesh);
      faults += !tried.fault.empty();
    }
  }
  const auto n = static_cast<int>(3 * count);
  EXPECT_LT(refused, n / 3);
  EXPECT_GT(bitwise, n / 20);
  EXPECT_GT(compared, n / 2);
  EXPECT_GT(communicating, n / 4);
  RecordProperty("refused", refused);
  RecordProperty("bitwise", bitwise);
  RecordProperty("compared", compared);
  RecordProperty("communicating", communicating);
}

}  // namespace
}  // namespace stow
