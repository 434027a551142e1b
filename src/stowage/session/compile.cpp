#include "stowage/base/inside.h"
#include "stowage/session/compile.h"

#include <atomic>
#include <utility>

#include "stowage/autodiff/flatten.h"
#include "stowage/base/progress.h"
#include "stowage/ir/schedule_summary.h"
#include "stowage/ops/verify.h"
#include "stowage/passes/partition.h"
#include "stowage/passes/policy_requests.h"
#include "stowage/passes/repeat_summands.h"
#include "stowage/passes/simplify.h"
#include "stowage/runtime/program.h"
#include "stowage/session/checkpoint_cost.h"
#include "stowage/session/dump.h"
#include "stowage/session/fixed_passes.h"
#include "stowage/session/plan_search.h"

namespace stow {
namespace {

// Facts about a program beside its schedule and plan.
struct Description {
  Description(const Graph& graph, Partitioned parts)
      : out_shardings(std::move(parts.out)),
        notes(std::move(parts.notes)) {
    for (ValueId v : graph.inputs()) inputs.push_back(graph.type(v));
    for (ValueId v : graph.outputs()) outputs.push_back(graph.type(v));
  }
  std::vector<ArrayType> inputs, outputs;
  std::vector<AxisSharding> out_shardings;
  std::vector<ShardingNote> notes;
  std::vector<CollectiveCount> collectives;
};

class CompiledProgram final : public Executable {
 public:
  CompiledProgram(Description description, Schedule schedule, MemoryPlan plan, TargetPtr target,
                  Dump dump)
      : description_(std::move(description)),
        target_(std::move(target)),
        program_(std::move(schedule), std::move(plan), target_),
        dump_(std::move(dump)) {
    description_.collectives = count_collectives(program_.schedule());
    for (const View& view : program_.schedule().outputs) {
      const Buffer& buffer = program_.schedule().buffers[view.buffer.index()];
      aliases_.push_back(buffer.role == BufferRole::kInput ? buffer.index : -1);
    }
  }
  const MemoryAnalysis& memory_analysis() const override { return program_.plan().analysis; }
  const Schedule& schedule() const override { return program_.schedule(); }
  const std::vector<int>& output_aliases() const override { return aliases_; }
  const std::vector<ArrayType>& input_types() const override { return description_.inputs; }
  const std::vector<ArrayType>& output_types() const override { return description_.outputs; }
  const std::vector<AxisSharding>& output_shardings() const override {
    return description_.out_shardings;
  }
  const std::vector<ShardingNote>& sharding_notes() const override { return description_.notes; }
  const std::vector<CollectiveCount>& collectives() const override {
    return description_.collectives;
  }
  std::vector<DeviceBufferPtr> run(Device& device, std::span<const DeviceBufferPtr> arguments,
                                   RunObserver* observer,
                                   const comm::MeshPosition* mesh) const override {
    if (dump_.on() && !has_dumped_.exchange(true)) dump_.inputs(description_.inputs, arguments);
    return program_.run(device, arguments, observer, mesh);
  }
  ExecutablePtr bound_again() const override {
    return std::make_shared<CompiledProgram>(description_, program_.schedule(), program_.plan(),
                                             target_, Dump());
  }

 private:
  Description description_;
  TargetPtr target_;
  Program program_;
  std::vector<int> aliases_;
  Dump dump_;
  mutable std::atomic<bool> has_dumped_ = false;  // its inputs
};

// Returns the graph after the fixed passes from kResidualsPass on, if every checkpoint keeps all
// that it may.
Graph with_all_kept(Graph graph) {
  const auto keep = [](const PolicyQuery&) { return PolicyAnswer{Mark::kKeep}; };
  const auto policy = std::make_shared<const Policy>(Policy{"everything", keep, {}});
  PassReport report;
  for (const FixedPass& fixed : fixed_passes().subspan(kResidualsPass))
    graph = fixed.run(graph, policy, report);
  return graph;
}

}  // namespace

ExecutablePtr compile(const Graph& graph, const CompileOptions& options, int threads) {
  return compile(graph, options, host_target(threads));
}

ExecutablePtr compile(const Graph& graph, const CompileOptions& options, const TargetPtr& target) {
  const ProgressScope progress(fmt::format("planning a program of {} operations", graph.n_nodes()));
  Dump dump(options, graph);
  Graph g = flatten_all(graph);
  // Returns the graph before the pass.
  const auto pass = [&](std::string_view name, auto&& function) {
    Graph before = std::exchange(g, function(g));
    dump.graph(std::string(name), g);
    verify(g);
    return before;
  };
  Partitioned parts;
  if (options.mesh) {
    pass("whole", [](const Graph& in) { return simplify(in); });
    parts = partition(g, options.mesh->mesh, options.mesh->in, options.mesh->out,
                      options.mesh->partition);
    pass("partition", [&](const Graph&) { return std::move(parts.graph); });
  }
  PassReport report;
  std::optional<Graph> marked;  // before the residuals, where checkpoints may cost something
  for (const FixedPass& fixed : fixed_passes()) {
    Graph before = pass(fixed.name, [&](const Graph& in) {
      return fixed.run(in, options.override_policy, report);
    });
    const bool is_residuals = &fixed == &fixed_passes()[kResidualsPass];
    if (is_residuals && options.reuse && !before.regions().empty()) marked = std::move(before);
  }
  // This check follows the residuals pass, whose message about a missing name is more exact.
  if (!options.override_policy) check_names_occur(graph);

  FoundPlan chosen = search_plan(g, options, *target);
  if (const auto cost = marked
                            ? checkpoint_cost(g, chosen.planned, lowering_options(options, *target),
                                              [&] { return with_all_kept(*marked); })
                            : std::nullopt)
    report.notes.push_back(*cost);
  dump.graph("updates", chosen.updates);
  dump.graph("tiles", chosen.tiled);
  Planned& planned = chosen.planned;
  MemoryAnalysis& analysis = planned.plan.analysis;
  analysis.limits.insert(analysis.limits.end(), report.limits.begin(), report.limits.end());
  analysis.notes = std::move(report.notes);
  if (dump.on()) {
    const LowerOptions lowering = lowering_options(options, *target);
    const Graph summands = lowering.fuse ? repeat_summands(chosen.tiled) : chosen.tiled;
    if (lowering.fuse) dump.graph("summands", summands);
    dump.lowering(summands, lowering);
    dump.schedule("scheduled", planned.schedule);
    dump.timeline(timeline_csv(planned.schedule, planned.plan));
  }
  return std::make_shared<CompiledProgram>(
      Description(chosen.tiled, std::move(parts)), std::move(planned.schedule),
      std::move(planned.plan), target, std::move(dump));
}

}  // namespace stow
