#include "stowage/train/sweep_planner.h"

#include <algorithm>

#include <fmt/format.h>

#include "stowage/runtime/comm/world.h"
#include "stowage/runtime/null/collective_time.h"
#include "stowage/runtime/null/simulate.h"
#include "stowage/train/finetune_model.h"
#include "stowage/train/fit.h"
#include "stowage/train/replication.h"

namespace stow {
namespace {

// Returns the busiest stream.
std::string busiest_stream(const Simulation& simulation) {
  size_t busiest = 0;
  for (size_t s = 1; s < simulation.streams.size(); ++s)
    if (simulation.streams[s].busy_s > simulation.streams[busiest].busy_s) busiest = s;
  return std::string(stream_name(static_cast<StreamKind>(busiest)));
}

// Returns placements of which one takes least of the device: recomputed layers, singly and in
// nested blocks, and the last of the open placements if something may lie in another memory.
std::vector<Placement> lean_placements(const Job& job) {
  const std::vector<Placement> placements = open_placements(job.config(), job.model().sizes());
  std::vector<Placement> lean;
  const auto add = [&](const Placement& p) {
    if (std::find(lean.begin(), lean.end(), p) == lean.end()) lean.push_back(p);
  };
  std::vector<StepPolicy> policies = {StepPolicy::kNested, StepPolicy::kRecompute};
  if (const std::optional<StepPolicy> asked = parse_policy(job.config().memory.policy))
    policies = {*asked};
  for (const StepPolicy policy : policies) {
    const auto last = std::find_if(placements.rbegin(), placements.rend(), [&](const Placement& p) {
      return p.policy == policy && is_all_on_device(p);
    });
    if (last != placements.rend()) add(*last);
  }
  if (!is_all_on_device(placements.back())) add(placements.back());
  return lean;
}

void note_whole(const Replication& replication, SweepPlan& plan) {
  plan.whole = replication_lines(replication);
  plan.whole_values = to_json(replication);
}

}  // namespace

Result<TrainConfig> config_of(const ConfigSources& sources, const SweepPoint& point) {
  ConfigSources changed = sources;
  const SweepMesh& mesh = point.mesh;
  for (const auto& [key, extent] : {std::pair("replica", mesh.replica), {"data", mesh.data},
                                    {"model", mesh.model}})
    changed.settings.push_back(fmt::format("mesh.{}={}", key, extent));
  // These keys have no effect without their axis.
  if (mesh.model == 1) changed.settings.push_back("mesh.sequence=false");
  if (mesh.data == 1)
    for (const char* key : {"mesh.parameters", "mesh.optimizer"})
      changed.settings.push_back(fmt::format("{}=auto", key));
  changed.settings.push_back(fmt::format("data.batch={}", point.batch));
  if (!point.policy.empty())
    changed.settings.push_back(fmt::format("memory.policy={}", point.policy));
  Result<TrainConfig> config = load_train_config(changed);
  // As `plan` does without --processes.
  if (config)
    config->runtime.window_bytes =
        comm::window_of(comm::Launch(), static_cast<int32_t>(mesh.size())).bytes_of_device();
  return config;
}

template <typename Use>
auto JobPlanner::with_job(const SweepPoint& point, const Use& use) const
    -> decltype(use(std::declval<const Job&>())) {
  Result<TrainConfig> config = config_of(sources_, point);
  if (!config) return config.failure();
  const Result<ModelFactory> factory = model_factory(*config);
  if (!factory) return factory.failure();
  try {
    return use(Job(*config, threads_of_(point.mesh.size()), *factory,
                   device_to_plan_for(*config, device_, is_named_)));
  } catch (const TraceError& error) {
    return fail("{}", error.what());
  }
}

Result<SweepPlan> JobPlanner::plan(const SweepPoint& point) const {
  return with_job(point, [&](const Job& job) -> Result<SweepPlan> {
    const TrainConfig& config = job.config();
    const Budgets budgets = budgets_of(config, config.memory.device);
    const Choice choice = choose_plan(job, budgets);
    SweepPlan plan;
    plan.tokens = config.data.batch * config.data.seq * config.data.accumulate;
    plan.fits = choice.plan.has_value();
    if (!plan.fits) {
      const auto least = std::min_element(
          choice.candidates.begin(), choice.candidates.end(), [&](const auto& a, const auto& b) {
            return device_bytes(config, a.peak_bytes) < device_bytes(config, b.peak_bytes);
          });
      plan.placement = to_string(least->placement);
      plan.peak_bytes = least->peak_bytes;
      plan.bound_by = "memory";
      const JobPlan lean = job.plan_to_fit(least->placement, {});
      note_whole(find_replication(job, lean, {}, 1), plan);
      return plan;
    }
    plan.placement = to_string(choice.plan->placement);
    plan.peak_bytes = choice.plan->peak_bytes;
    note_whole(find_replication(job, *choice.plan, budgets, 1), plan);
    if (!device_ || !check_network(*device_, job.mesh())) return plan;
    const Simulation simulation = simulate(choice.plan->programs.step->schedule(), *device_);
    plan.step_s = simulation.step_s;
    plan.exposed_s = simulation.exposed_s;
    plan.bound_by = busiest_stream(simulation);
    return plan;
  });
}

Result<LeanestPlan> JobPlanner::plan_leanest(const SweepPoint& point) const {
  return with_job(point, [&](const Job& job) -> Result<LeanestPlan> {
    const TrainConfig& config = job.config();
    const Budgets budgets = budgets_of(config, config.memory.device);
    std::vector<Placement> placements = lean_placements(job);
    const std::tuple key(point.mesh.replica, point.mesh.data, point.mesh.model, point.policy,
                         point.search_batch);
    {
      const std::lock_guard lock(mutex_);
      if (const auto known = leanest_.find(key); known != leanest_.end())
        placements = {known->second};
    }
    std::optional<LeanestPlan> least;
    const Placement* leanest = nullptr;
    for (const Placement& placement : placements) {
      const JobPlan plan = job.plan_until_over(placement, budgets);
      const LeanestPlan need{device_bytes(config, plan.peak_bytes),
                             !first_over(config, plan.peak_bytes, budgets)};
      if (least && std::pair(!least->fits, least->device_bytes) <=
                       std::pair(!need.fits, need.device_bytes))
        continue;
      least = need;
      leanest = &placement;
    }
    const std::lock_guard lock(mutex_);
    leanest_[key] = *leanest;
    return *least;
  });
}

}  // namespace stow
