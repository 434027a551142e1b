// Random programs: every plan is valid, exact and changes no bit.
//
// STOW_FUZZ_COUNT programs (80) from STOW_FUZZ_SEED (1) on; STOW_FUZZ_FORK=1 runs each in a
// process of its own, with one thread, so that a check that aborts is shrunk as well.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

#include "stowage/base/text_file.h"
#include "stowage/core/scalar.h"
#include "stowage/ir/parse.h"
#include "stowage/ir/print.h"
#include "stowage/ops/verify.h"
#include "stowage/passes/fuse.h"
#include "tests/fuzz/child_process.h"
#include "tests/fuzz/near.h"
#include "tests/fuzz/random_program.h"
#include "tests/fuzz/shrink.h"
#include "tests/support/check_lives.h"
#include "tests/support/crash_note.h"
#include "tests/support/execute.h"
#include "tests/support/source_path.h"

namespace stow {
namespace {

using testing::Bytes;
using testing::environment;
using testing::Execution;
using testing::forks_checks;
using testing::kind_of;
using testing::number;
using testing::RandomProgram;

std::string compare(const char* what, const Graph& graph, const std::vector<Bytes>& got,
                    const std::vector<Bytes>& want) {
  for (size_t o = 0; o < want.size(); ++o) {
    if (got[o] == want[o]) continue;
    const ArrayType& type = graph.type(graph.outputs()[o]);
    for (size_t i = 0; i < static_cast<size_t>(type.elems()); ++i)
      if (const double a = number(type, got[o], i), b = number(type, want[o], i);
          std::memcmp(&a, &b, sizeof a) != 0 && !(std::isnan(a) && std::isnan(b)))
        return fmt::format("{}: output {} of type {} differs at {}: {} for {}", what, o,
                           to_string(type), i, a, b);
  }
  return "";
}

// The loss's slope along a random direction, by differences and by the gradients.
std::string compare_slopes(const RandomProgram& program, const std::vector<Bytes>& results) {
  const Graph& forward = *program.forward;
  const size_t n_inputs = forward.inputs().size(), n_outputs = forward.outputs().size();
  std::vector<std::vector<double>> direction;
  double slope = 0, size = 1;
  for (size_t w = 0; w < program.wrt.size(); ++w) {
    const ArrayType& type = forward.type(forward.inputs()[static_cast<size_t>(program.wrt[w])]);
    const Bytes random = testing::random_values(w + 77, type);
    direction.emplace_back();
    for (size_t i = 0; i < static_cast<size_t>(type.elems()); ++i) {
      direction[w].push_back(number(type, random, i));
      const double part = direction[w][i] * number(type, results[n_outputs + w], i);
      slope += part;
      size += std::fabs(part);
    }
  }
  const double seed = number({DType::kF64, {}}, program.inputs[n_inputs], 0);
  const auto difference = [&](double step) {
    double losses[2];
    for (int side = 0; side < 2; ++side) {
      std::vector<Bytes> inputs(program.inputs.begin(),
                                program.inputs.begin() + static_cast<std::ptrdiff_t>(n_inputs));
      for (size_t w = 0; w < program.wrt.size(); ++w) {
        auto* x = reinterpret_cast<double*>(inputs[static_cast<size_t>(program.wrt[w])].data());
        for (size_t i = 0; i < direction[w].size(); ++i)
          x[i] += (side ? -step : step) * direction[w][i];
      }
      losses[side] = number({DType::kF64, {}}, testing::evaluate(forward, inputs)[0], 0);
    }
    return seed * (losses[0] - losses[1]) / (2 * step);
  };
  const double near = difference(1e-6), nearer = difference(2.5e-7);
  const double error = 1e-4 * std::max(size, std::fabs(near));
  // A kink in between, or too steep to tell.
  if (!(std::fabs(near - nearer) <= error / 4)) return "";
  if (std::fabs(near - slope) <= error) return "";
  return fmt::format("gradient: slope {} for {} by differences", slope, near);
}

// The program with all scans as loops; nothing where that is what it is.
std::optional<Graph> rolled(const Graph& graph) {
  Graph result = graph;
  bool changed = false;
  for (size_t n = 0; n < result.n_nodes(); ++n) {
    Node& node = result.mutable_node(NodeId(n));
    if (auto* p = std::get_if<ScanParams>(&node.params)) {
      changed |= p->unroll != 1;
      p->unroll = 1;
    }
    for (GraphPtr& nested : node.graphs)
      if (std::optional<Graph> inner = rolled(*nested)) {
        nested = std::make_shared<const Graph>(std::move(*inner));
        changed = true;
      }
  }
  if (!changed) return std::nullopt;
  return result;
}

// True if an output of a loop's body is computed from that input.
bool depends_on(const Graph& body, ValueId output, ValueId input) {
  std::vector<bool> wanted(body.n_values());
  wanted[output.index()] = true;
  for (size_t n = body.n_nodes(); n-- > 0;) {
    const Node& node = body.nodes()[n];
    bool is_wanted = false;
    for (int i = 0; i < node.n_results; ++i)
      is_wanted = is_wanted || wanted[node.result(i).index()];
    if (is_wanted)
      for (ValueId v : node.operands) wanted[v.index()] = true;
  }
  return wanted[input.index()];
}

// A donated argument that one loop alone reads, as what a carry begins with, and the result that
// the carry becomes: no result may lie elsewhere while the argument's memory is idle. A carry that
// the body replaces by something else may. So may one of a loop that is written out and whose body
// also hands the old value on: that is a copy of the argument, made when all else is.
std::string compare_aliases(const RandomProgram& program, const std::vector<int>& aliases) {
  const Graph& graph = program.graph;
  std::vector<int> n_readers(graph.n_values());
  for (const Node& node : graph.nodes())
    for (ValueId v : node.operands) ++n_readers[v.index()];
  for (ValueId v : graph.outputs()) ++n_readers[v.index()];
  for (size_t output = 0; output < graph.outputs().size(); ++output) {
    const ValueId v = graph.outputs()[output];
    if (graph.is_input(v) || graph.def(v).op != OpKind::kScan || n_readers[v.index()] != 1)
      continue;
    const Node& scan = graph.def(v);
    const auto& p = scan.as<ScanParams>();
    const int k = graph.value(v).index;
    if (k >= p.n_carries) continue;
    const ValueId init = scan.operands[static_cast<size_t>(p.n_consts + k)];
    if (!graph.is_input(init) || n_readers[init.index()] != 1 || graph.type(init).elems() == 0)
      continue;
    const Graph& body = *scan.graphs[0];
    if (!depends_on(body, body.outputs()[static_cast<size_t>(k)],
                    body.inputs()[static_cast<size_t>(p.n_consts + k)]))
      continue;
    const auto hands_on_old = [&](size_t o) {
      return o != static_cast<size_t>(k) &&
             skip_passthrough(body, body.outputs()[o]) ==
                 body.inputs()[static_cast<size_t>(p.n_consts + k)];
    };
    bool is_copied = false;
    for (size_t o = 0; o < body.outputs().size(); ++o) is_copied = is_copied || hands_on_old(o);
    if (p.unroll != 1 && is_copied) continue;
    const int i = graph.value(init).index;
    if (program.donated[static_cast<size_t>(i)] && aliases[output] < 0 &&
        std::find(aliases.begin(), aliases.end(), i) == aliases.end())
      return fmt::format("alias: carry {} begins with donated argument {}, where no result lies", k,
                         i);
  }
  return "";
}

// What does not hold of a program; empty when all does.
std::string check(const RandomProgram& program) {
  const Graph& graph = program.graph;
  const int threads = forks_checks() ? 1 : 2;
  try {
    verify(graph);
    if (std::string fault = testing::check_lives_of_all(graph, program.donated); !fault.empty())
      return "lives: " + fault;
    const Execution judge = testing::execute(
        graph, {.donated = program.donated, .fuse = false, .reuse = false}, program.inputs, 1);
    if (!judge.fault.empty()) return "judge: " + judge.fault;
    if (program.smooth)
      if (std::string fault = testing::compare_loosely(graph, program.inputs, judge.outputs);
          !fault.empty())
        return fault;
    if (program.forward)
      if (std::string fault = compare_slopes(program, judge.outputs); !fault.empty()) return fault;
    if (const std::optional<Graph> loops = rolled(graph)) {
      const Execution e =
          testing::execute(*loops, {.donated = program.donated}, program.inputs, threads);
      if (!e.fault.empty()) return "rolled: " + e.fault;
      if (std::string fault = compare("rolled", graph, e.outputs, judge.outputs); !fault.empty())
        return fault;
    }
    const uint64_t second = graph.n_nodes() + 4;
    for (const PolicyPtr& policy : {PolicyPtr(), testing::random_policy(second)}) {
      if (policy && !program.differentiated) continue;
      const std::string which = policy ? "under another policy" : "as written";
      for (const bool fuse : {true, false})
        for (const bool reuse : {true, false}) {
          if (!policy && !fuse && !reuse) continue;
          if (!policy && fuse != reuse && graph.n_nodes() % 4 != 0) continue;  // to save time
          constexpr int kAhead[] = {0, 1, 3, 13, 377};
          const size_t draw = graph.n_nodes() + (policy ? 1 : 0) + fuse;
          const int ahead = kAhead[draw % std::size(kAhead)];
          constexpr int64_t kTiles[] = {8, 32, 100, 512, 0};
          const int64_t tile_bytes = kTiles[(graph.n_nodes() / 4 + reuse) % std::size(kTiles)];
          const int64_t least_epilogue = draw % 4 == 0 ? CompileOptions().least_epilogue : 0;
          const Execution e = testing::execute(graph,
                                               {.donated = program.donated,
                                                .override_policy = policy,
                                                .fuse = fuse,
                                                .least_epilogue = least_epilogue,
                                                .reuse = reuse,
                                                .transfers_ahead = ahead,
                                                .tile_bytes = tile_bytes},
                                               program.inputs, threads);
          const std::string how =
              fmt::format("{}{}{}, {} moves ahead, tiles of {}", which, fuse ? ", fused" : "",
                          reuse ? ", reused" : "", ahead, tile_bytes);
          if (!e.fault.empty()) return how + ": " + e.fault;
          if (std::string fault = compare(how.c_str(), graph, e.outputs, judge.outputs);
              !fault.empty())
            return fault;
          if (std::string fault = compare_aliases(program, e.aliases); reuse && !fault.empty())
            return how + ": " + fault;
          if (!reuse || e.analysis.host().total_bytes + e.analysis.disk().total_bytes == 0)
            continue;
          // Where all is too much, what is tried last is taken.
          const Execution c = testing::execute(graph,
                                               {.donated = program.donated,
                                                .override_policy = policy,
                                                .fuse = fuse,
                                                .transfers_ahead = ahead,
                                                .capacities = {1, 1, 1},
                                                .tile_bytes = tile_bytes},
                                               program.inputs, threads);
          if (!c.fault.empty()) return "under no budget: " + c.fault;
          if (std::string fault = compare("under no budget", graph, c.outputs, judge.outputs);
              !fault.empty())
            return fault;
          // A budget between the least and half as much again buys moves that run ahead.
          CompileOptions budgeted{.donated = program.donated,
                                  .override_policy = policy,
                                  .fuse = fuse,
                                  .transfers_ahead = 0};
          const int64_t total =
              compile(graph, budgeted, threads)->memory_analysis().device().total_bytes;
          const int64_t budget = total + total * static_cast<int64_t>(graph.n_nodes() % 8) / 16;
          budgeted.transfers_ahead = kAhead[1 + draw % 4];
          budgeted.capacities[0] = budget;
          const Execution b = testing::execute(graph, budgeted, program.inputs, threads);
          if (!b.fault.empty()) return "under a budget: " + b.fault;
          if (b.analysis.device().total_bytes > budget)
            return fmt::format("under a budget of {}: {}", budget, b.analysis.device().total_bytes);
          if (std::string fault = compare("under a budget", graph, b.outputs, judge.outputs);
              !fault.empty())
            return fault;
        }
    }
  } catch (const std::exception& error) {
    return fmt::format("exception: {}", error.what());
  }
  return "";
}

std::string judge(const RandomProgram& program) {
  return forks_checks() ? testing::check_in_child_process([&] { return check(program); })
                        : check(program);
}

std::string text_of(const RandomProgram& program) {
  std::string donated;
  for (size_t i = 0; i < program.donated.size(); ++i)
    if (program.donated[i]) donated += fmt::format(" {}", i);
  return fmt::format("donated:{}\n{}", donated.empty() ? " none" : donated, print(program.graph));
}

std::string report(uint64_t seed, RandomProgram program, const std::string& fault) {
  const std::string kind = kind_of(fault);
  std::string text = fmt::format("seed {}: {}\n", seed, fault);
  if (kind.starts_with("gradient")) {
    text += fmt::format("of\n{}", print(*program.forward));
  } else {
    program.forward.reset();
    const RandomProgram small = testing::shrink(
        program,
        [&](const RandomProgram& candidate) {
          testing::set_crash_note(
              fmt::format("while seed {} was made smaller\n{}", seed, text_of(candidate)));
          return kind_of(judge(candidate)) == kind;
        },
        static_cast<int>(environment("STOW_FUZZ_SHRINK", 400)));
    text += fmt::format("made smaller: {}\n{}", judge(small), text_of(small));
  }
  std::ofstream(fmt::format("fuzz-{}.txt", seed)) << text;
  return text;
}

TEST(PlanFuzz, EveryPlanIsExactAndKeepsTheBits) {
  const uint64_t first = environment("STOW_FUZZ_SEED", 1),
                 count = environment("STOW_FUZZ_COUNT", 80);
  int n_failed = 0;
  for (uint64_t seed = first; seed < first + count && n_failed < 20; ++seed) {
    testing::set_crash_note(fmt::format("making the program of seed {}", seed));
    RandomProgram program;
    try {
      program = testing::random_program(seed);
    } catch (const std::exception& error) {
      ADD_FAILURE() << fmt::format("seed {}, while it was made: {}", seed, error.what());
      ++n_failed;
      continue;
    }
    testing::set_crash_note(fmt::format("seed {}\n{}", seed, text_of(program)));
    if (const std::string fault = judge(program); !fault.empty()) {
      ADD_FAILURE() << report(seed, program, fault);
      ++n_failed;
    }
  }
}

// Programs that went wrong once, each a text under tests/fuzz/programs.
TEST(PlanFuzz, FoundPrograms) {
  const std::string folder = source_path("tests/fuzz/programs");
  int n = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const Result<std::string> text = read_text_file(entry.path());
    ASSERT_TRUE(text.ok()) << text.error();
    const std::string graph_text = text.value().substr(text.value().find("graph("));
    const Result<GraphPtr> graph =
        parse_graph(graph_text, entry.path().string(), testing::policy_of_name);
    ASSERT_TRUE(graph.ok()) << graph.error();
    RandomProgram program;
    program.graph = **graph;
    program.differentiated = true;
    for (ValueId v : program.graph.inputs())
      program.inputs.push_back(testing::random_values(v.value + 5, program.graph.type(v)));
    for (const bool donate : {false, true}) {
      SCOPED_TRACE(entry.path().filename().string() + (donate ? ", all donated" : ""));
      testing::set_crash_note(text_of(program));
      program.donated.assign(program.inputs.size(), donate);
      EXPECT_EQ(judge(program), "");
    }
    ++n;
  }
  EXPECT_GE(n, 21);
}

// What the programs hold, so that a change of the generator that loses a kind is seen.
TEST(PlanFuzz, ProgramsAreOfManyKinds) {
  std::vector<int> ops(kNumOps), holding_away(kNumOps);  // and those of these with values elsewhere
  int differentiated = 0, slopes = 0, donated = 0, smooth = 0, reverse = 0, empty = 0, nested = 0;
  const std::function<void(const Graph&, int)> visit = [&](const Graph& graph, int depth) {
    for (const Node& node : graph.nodes()) {
      ++ops[static_cast<size_t>(node.op)];
      if (node.op == OpKind::kScan) {
        reverse += node.as<ScanParams>().reverse;
        empty += node.as<ScanParams>().length == 0;
        nested += depth > 0;
      }
      for (const GraphPtr& inner : node.graphs) visit(*inner, depth + 1);
      holding_away[static_cast<size_t>(node.op)] +=
          std::any_of(node.operands.begin(), node.operands.end(),
                      [&](ValueId v) { return graph.type(v).kind != MemoryKind::kDevice; });
    }
  };
  constexpr int kPrograms = 300;
  for (uint64_t seed = 1; seed <= kPrograms; ++seed) {
    const RandomProgram program = testing::random_program(seed);
    differentiated += program.differentiated;
    slopes += program.forward.has_value();
    smooth += program.smooth;
    donated += std::count(program.donated.begin(), program.donated.end(), true) > 0;
    visit(program.graph, 0);
  }
  EXPECT_GT(differentiated, kPrograms / 3);
  EXPECT_GT(slopes, 20);
  EXPECT_GT(smooth, kPrograms / 2);
  EXPECT_GT(donated, kPrograms / 3);
  EXPECT_GT(reverse, 50);
  EXPECT_GT(empty, 20);
  EXPECT_GT(nested, 20);
  for (const OpKind op : {OpKind::kScan,
                          OpKind::kCond,
                          OpKind::kWhile,
                          OpKind::kCheckpoint,
                          OpKind::kCustomVjp,
                          OpKind::kDotGeneral,
                          OpKind::kGather,
                          OpKind::kScatterAdd,
                          OpKind::kDynamicSlice,
                          OpKind::kDynamicUpdateSlice,
                          OpKind::kPad,
                          OpKind::kConcatenate,
                          OpKind::kSlice,
                          OpKind::kTranspose,
                          OpKind::kReshape,
                          OpKind::kReverse,
                          OpKind::kBroadcast,
                          OpKind::kReduceSum,
                          OpKind::kReduceMax,
                          OpKind::kCumSum,
                          OpKind::kSort,
                          OpKind::kTopK,
                          OpKind::kLinearScan,
                          OpKind::kCumMax,
                          OpKind::kScatter,
                          OpKind::kScatterMax,
                          OpKind::kWindowSum,
                          OpKind::kWindowMax,
                          OpKind::kConvolution,
                          OpKind::kSelect,
                          OpKind::kAttention,
                          OpKind::kName})
    EXPECT_GT(ops[static_cast<size_t>(op)], 20) << op_name(op);
  for (const OpKind op : {OpKind::kScan, OpKind::kCond, OpKind::kWhile, OpKind::kCheckpoint,
                          OpKind::kSlice, OpKind::kConcatenate, OpKind::kDevicePut})
    EXPECT_GT(holding_away[static_cast<size_t>(op)], 20) << op_name(op);
}

}  // namespace
}  // namespace stow
