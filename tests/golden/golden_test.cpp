// Runs every *.txt of this folder: graphs, the passes they go through and the text they become; the
// last may give units or a schedule. A schedule's text is read back as well.
//
//   // Comments, kept.
//   --- input simplify            the passes, in order; none prints the graph as it was read
//   graph(…) { … }
//   --- expected
//   graph(…) { … }
//
// A file may hold many such pairs. `golden_tests --update` (or STOW_UPDATE_GOLDEN=1) rewrites what
// is expected.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <sstream>

#include "stowage/autodiff/flatten.h"
#include "stowage/ir/parse.h"
#include "stowage/ir/print.h"
#include "stowage/ir/schedule_parser.h"
#include "stowage/ir/schedule_printer.h"
#include "stowage/ops/verify.h"
#include "stowage/passes/combine.h"
#include "stowage/passes/combine_all_reduces.h"
#include "stowage/passes/dead_code.h"
#include "stowage/passes/fuse.h"
#include "stowage/passes/gather_blocks.h"
#include "stowage/passes/keep_resident.h"
#include "stowage/passes/lower.h"
#include "stowage/passes/merge_independent_scans.h"
#include "stowage/passes/move_parts.h"
#include "stowage/passes/order.h"
#include "stowage/passes/partition.h"
#include "stowage/passes/repeat_summands.h"
#include "stowage/passes/repeat_work.h"
#include "stowage/passes/residuals.h"
#include "stowage/passes/simplify.h"
#include "stowage/passes/sink_into_scans.h"
#include "stowage/passes/sink_moves.h"
#include "stowage/passes/slice_work.h"
#include "stowage/passes/spill_stacks.h"
#include "stowage/passes/tiles.h"
#include "stowage/passes/transfers.h"
#include "stowage/passes/units_text.h"
#include "stowage/passes/unroll.h"
#include "stowage/passes/view.h"
#include "stowage/runtime/null/built_in_devices.h"
#include "stowage/session/overlap.h"
#include "tests/support/source_path.h"

namespace stow {
namespace {

bool update = false;

// Inputs that a `reshard` reads, and outputs that are one, lie as it says; others whole, or anyhow.
Graph partition_as_marked(const Graph& graph) {
  MeshShape mesh;
  std::vector<AxisSharding> in;
  for (ValueId v : graph.inputs()) in.push_back(whole_sharding(graph.type(v).shape.rank()));
  for (const Node& node : graph.nodes()) {
    if (node.op != OpKind::kReshard) continue;
    mesh = node.as<ReshardParams>().mesh;
    if (const Value& read = graph.value(node.operands[0]); !read.node.valid())
      in[static_cast<size_t>(read.index)] = node.as<ReshardParams>().sharding;
  }
  std::vector<std::optional<AxisSharding>> out;
  for (ValueId v : graph.outputs()) {
    out.emplace_back();
    if (!graph.is_input(v) && graph.def(v).op == OpKind::kReshard)
      out.back() = graph.def(v).as<ReshardParams>().sharding;
  }
  return partition(graph, mesh, in, out).graph;
}

const std::map<std::string, std::function<Graph(const Graph&)>>& passes() {
  static const std::map<std::string, std::function<Graph(const Graph&)>> kPasses = {
      {"simplify", simplify},
      {"remove_dead_code", remove_dead_code},
      {"flatten_checkpoints", flatten_checkpoints},
      {"partition", partition_as_marked},
      {"realize_residuals", [](const Graph& graph) { return realize_residuals(graph, nullptr); }},
      {"combine_sums", combine_sums},
      {"combine_all_reduces", combine_all_reduces},
      {"move_parts", move_parts},
      {"sink_moves", sink_moves},
      {"sink_into_scans", [](const Graph& graph) { return sink_into_scans(graph); }},
      {"unroll_scans", unroll_scans},
      {"sum_slices", sum_slices},
      {"update_slices", update_slices},
      {"spill_stacks", spill_stacks},
      {"keep_resident", [](const Graph& graph) { return keep_resident(graph, 64).graph; }},
      {"merge_independent_scans", merge_independent_scans},
      {"repeat_summands", repeat_summands},
      {"repeat_work",
       [](const Graph& graph) {
         std::vector<std::string> limits;
         return repeat_work(graph, limits);
       }},
      {"gather_by_blocks", [](const Graph& graph) { return gather_by_blocks(graph, 64); }},
      {"stream_tiles", [](const Graph& graph) { return stream_tiles(graph, {.bytes = 64}); }},
  };
  return kPasses;
}

// Units as fuse() makes them with inputs that lie as arguments do; nothing is too small for it.
Units units_of(const Graph& graph) {
  std::vector<View> views;
  for (ValueId v : graph.inputs()) views.push_back(contiguous_view(BufferId(), graph.type(v)));
  return fuse(graph, views, true, 0, 1);
}
std::string fused(const Graph& graph) { return print(graph, units_of(graph)); }

// The units, and each strategy's order of them with its peak. Values take their bytes, inputs none.
std::string ordered(const Graph& graph) {
  const Units units = units_of(graph);
  std::vector<int64_t> bytes;
  for (size_t v = 0; v < graph.n_values(); ++v)
    bytes.push_back(graph.is_input(ValueId(v)) || !units.uses[v].needs_memory
                        ? 0
                        : graph.type(ValueId(v)).bytes());
  const std::vector<int64_t> scratch(units.units.size(), 0);
  std::string text = print(graph, units);
  constexpr std::pair<OrderStrategy, const char*> kStrategies[] = {
      {OrderStrategy::kProgram, "program"},
      {OrderStrategy::kGreedy, "greedy"},
      {OrderStrategy::kBeam, "beam"}};
  static_assert(std::size(kStrategies) == kNumOrderStrategies);
  for (const auto& [strategy, name] : kStrategies) {
    std::vector<std::string> limits;
    const std::vector<int> order = order_units(graph, units, bytes, scratch, strategy, limits);
    text += fmt::format("{}: {}; peak {} bytes\n", name, fmt::join(order, " "),
                        peak_bytes(graph, units, bytes, scratch, order));
  }
  return text;
}

// Kernels that take no scratch, on one thread.
Schedule lowered(const Graph& graph, bool fuse) {
  LowerOptions options;
  options.fuse = fuse;
  options.target.scratch_bytes = [](const Kernel&) { return int64_t{0}; };
  return lower(graph, options);
}
std::string text_of(const Schedule& schedule) {
  std::string text = print(schedule);
  const Result<Schedule> again = parse_schedule(text, "schedule");
  if (!again.ok()) return text + again.error() + "\n";
  EXPECT_EQ(print(*again), text);
  return text;
}

// The schedule with the moves ahead that overlap() chooses for a device of so many bytes, or as
// many as the plain layout takes.
std::string overlapped(const Graph& graph, std::optional<int64_t> device_bytes) {
  Planned planned;
  planned.schedule = lowered(graph, true);
  planned.plan = make_plan(planned.schedule, {});
  Device::Capacities capacities = {Device::unlimited_bytes(), Device::unlimited_bytes(),
                                   Device::unlimited_bytes()};
  if (device_bytes) capacities[0] = *device_bytes;
  planned = overlap(std::move(planned), 4, capacities, *common_cpu());
  return text_of(planned.schedule) +
         fmt::format("device: {} bytes\n", planned.plan.analysis.device().total_bytes);
}

// What a graph may become at last.
const std::map<std::string, std::function<std::string(const Graph&)>>& last_passes() {
  static const std::map<std::string, std::function<std::string(const Graph&)>> kPasses = {
      {"fuse", fused},
      {"order", ordered},
      {"lower", [](const Graph& graph) { return text_of(lowered(graph, true)); }},
      {"lower_unfused", [](const Graph& graph) { return text_of(lowered(graph, false)); }},
      {"lower_and_overlap",
       [](const Graph& graph) {
         const Schedule schedule = lowered(graph, true);
         const std::vector<int> ahead(count_moves(schedule), 1);
         return text_of(overlap_transfers(schedule, ahead).schedule);
       }},
      {"choose_overlap", [](const Graph& graph) { return overlapped(graph, std::nullopt); }},
      {"choose_overlap_in_1KiB", [](const Graph& graph) { return overlapped(graph, 1024); }},
  };
  return kPasses;
}

struct Case {
  std::string before;  ///< Comments and the line "--- input …".
  std::vector<std::string> passes;
  std::string input, expected;
  int line = 0;  ///< Where the input begins.
};

std::vector<Case> read_cases(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<Case> cases(1);
  std::string* section = &cases.back().before;
  int n = 1;
  for (std::string line; std::getline(file, line); ++n) {
    if (line.rfind("//", 0) == 0 && section == &cases.back().expected) {
      cases.emplace_back();
      section = &cases.back().before;
    }
    if (line.rfind("--- input", 0) == 0) {
      if (section == &cases.back().expected) cases.emplace_back();
      cases.back().before += line + "\n";
      cases.back().line = n;
      std::istringstream words(line.substr(9));
      for (std::string pass; words >> pass;) cases.back().passes.push_back(pass);
      section = &cases.back().input;
    } else if (line == "--- expected") {
      section = &cases.back().expected;
    } else {
      *section += line + "\n";
    }
  }
  return cases;
}

// A policy that keeps nothing, or products if that is its name.
PolicyPtr any_policy(std::string_view name) {
  const bool keeps = name == "keep_products";
  const auto decide = [keeps](const PolicyQuery& query) {
    return PolicyAnswer{keeps && query.op == OpKind::kDotGeneral ? Mark::kKeep : Mark::kRecompute};
  };
  return std::make_shared<Policy>(Policy{std::string(name), decide, {}});
}

// The text after the passes. Verified before, between and after them; a fixed point of reading.
std::string transformed(const Case& c, const std::string& name) {
  const Result<GraphPtr> parsed =
      parse_graph(std::string(static_cast<size_t>(c.line), '\n') + c.input, name, any_policy);
  if (!parsed.ok()) return parsed.error() + "\n";
  Graph graph = **parsed;
  try {
    verify(graph);
    for (const std::string& pass : c.passes) {
      if (const auto last = last_passes().find(pass); last != last_passes().end()) {
        EXPECT_EQ(pass, c.passes.back());
        return last->second(graph);
      }
      const auto it = passes().find(pass);
      if (it == passes().end()) return "no pass is called " + pass + "\n";
      graph = it->second(graph);
      verify(graph);
    }
  } catch (const TraceError& e) {
    return std::string(e.what()) + "\n";
  }
  const std::string text = print(graph);
  const Result<GraphPtr> again = parse_graph(text, name, any_policy);
  if (!again.ok()) return again.error() + "\n";
  EXPECT_EQ(print(**again), text);
  return text;
}

class Golden : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(Golden, IsAsExpected) {
  std::vector<Case> cases = read_cases(GetParam());
  std::string rewritten;
  for (Case& c : cases) {
    const std::string name = GetParam().filename().string();
    const std::string text = transformed(c, name);
    if (!update) {
      EXPECT_EQ(text, c.expected) << name << ":" << c.line;
    }
    rewritten += c.before + c.input + "--- expected\n" + text;
  }
  if (update) std::ofstream(GetParam()) << rewritten;
}

std::vector<std::filesystem::path> golden_files() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(source_path("tests/golden")))
    if (entry.path().extension() == ".txt") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

INSTANTIATE_TEST_SUITE_P(Files, Golden, testing::ValuesIn(golden_files()),
                         [](const auto& info) { return info.param.stem().string(); });

}  // namespace
}  // namespace stow

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const char* const env = std::getenv("STOW_UPDATE_GOLDEN");
  stow::update = env && *env == '1';
  for (int i = 1; i < argc; ++i) stow::update |= std::string_view(argv[i]) == "--update";
  return RUN_ALL_TESTS();
}
