#include <algorithm>
#include <chrono>
#include <functional>
#include <span>

#include <fmt/format.h>

#include "stowage/base/bytes.h"
#include "stowage/base/parallel_in_order.h"
#include "stowage/base/progress.h"
#include "stowage/runtime/target.h"
#include "stowage/session/planning_scope.h"
#include "stowage/train/fastest.h"
#include "stowage/train/fit.h"

namespace stow {

std::optional<MemoryKind> first_over(const TrainConfig& config, const BytesByKind& peak_bytes,
                                     const Budgets& budgets, size_t first) {
  const BytesByKind needs = budgeted_bytes(config, peak_bytes);
  for (size_t kind = first; kind < budgets.size(); ++kind)
    if (budgets[kind] && needs[kind] > *budgets[kind]) return static_cast<MemoryKind>(kind);
  return std::nullopt;
}

BytesByKind state_bytes(const Job& job, const Placement& p) {
  BytesByKind bytes{};
  for (size_t i = 0; i < job.state().size(); ++i) {
    const ArrayType& type = job.state()[i].part;
    if (type.shape.rank() == 0) continue;
    const MemoryKind kind = i < job.n_model_leaves()  ? p.parameters
                            : i >= job.first_ema_leaf() ? ema_kind(job.config(), p.optimizer)
                                                        : p.optimizer;
    bytes[static_cast<size_t>(kind)] += type.bytes();
  }
  for (const StateLeaf& leaf : job.frozen())
    bytes[static_cast<size_t>(p.frozen)] += leaf.part.bytes();
  return bytes;
}

bool has_room_for_state(const Job& job, const Placement& p, const Budgets& budgets) {
  return !first_over(job.config(), state_bytes(job, p), budgets, 1);
}

std::string over_budgets(const TrainConfig& config, const JobPlan& plan, const Budgets& budgets) {
  std::string over;
  const BytesByKind needs = budgeted_bytes(config, plan.peak_bytes);
  for (size_t kind = 0; kind < budgets.size(); ++kind)
    if (budgets[kind] && needs[kind] > *budgets[kind])
      over += (over.empty() ? "" : ", ") +
              (kind == 0 ? "over the budget"
                         : fmt::format("over the budget of {}: {}",
                                       memory_kind_name(static_cast<MemoryKind>(kind)),
                                       format_bytes(needs[kind])));
  return over;
}

namespace {

// A plan that was made for the budgets and exceeds none of them by more than 1 / kNearPartOfBudget
// is made again without budgets: the bytes of the two differ by about as much at most.
constexpr int64_t kNearPartOfBudget = 100;

// True if no budget is exceeded by more than 1 / kNearPartOfBudget of it.
bool is_nearly_within(const TrainConfig& config, const BytesByKind& peak_bytes,
                      const Budgets& budgets) {
  const BytesByKind needs = budgeted_bytes(config, peak_bytes);
  for (size_t kind = 0; kind < budgets.size(); ++kind)
    if (budgets[kind] && needs[kind] - *budgets[kind] > *budgets[kind] / kNearPartOfBudget)
      return false;
  return true;
}

// The search plans only the first of several placements that differ in memories beside the device.
// If another memory is too small for that one too, other placements show what the device alone
// would need. Plans those that need least of the device first, until one has room for the rest.
void plan_those_with_room(const Job& job, const Budgets& budgets,
                          const OverBudgetPlacements& over_budget,
                          std::vector<Placement> placements, Choice& choice) {
  const TrainConfig& config = job.config();
  std::erase_if(placements, [&](const Placement& p) { return !over_budget.is_known(p); });
  std::stable_sort(placements.begin(), placements.end(),
                   [&](const Placement& a, const Placement& b) {
                     return over_budget.noted_bytes(a) < over_budget.noted_bytes(b);
                   });
  for (const Placement& placement : placements) {
    if (!has_room_for_state(job, placement, budgets)) continue;
    auto candidate = std::find_if(choice.candidates.begin(), choice.candidates.end(),
                             [&](const Candidate& r) { return r.placement == placement; });
    if (candidate == choice.candidates.end()) {
      JobPlan plan = job.plan_to_fit(placement, budgets);
      const std::string over = over_budgets(config, plan, budgets);
      choice.candidates.push_back({placement, plan.peak_bytes, over});
      if (over.empty()) {
        choice.plan = std::move(plan);
        return;
      }
      candidate = choice.candidates.end() - 1;
    }
    if (!first_over(config, candidate->peak_bytes, budgets, 1)) return;
  }
}

}  // namespace

namespace {

Choice find_fit(const Job& job, const Budgets& budgets, std::span<const Candidate> known) {
  Choice choice;
  const TrainConfig& config = job.config();
  OverBudgetPlacements over_budget(config, budgets);
  const std::vector<Placement> placements = open_placements(config, job.model().sizes());
  using Work = std::function<JobPlan()>;
  const auto begin = [&](size_t i) -> std::optional<Work> {
    if (over_budget.is_known(placements[i])) return std::nullopt;
    const auto is_this = [&](const Candidate& c) { return c.placement == placements[i]; };
    if (const auto at = std::find_if(known.begin(), known.end(), is_this); at != known.end())
      return [&candidate = *at] {
        JobPlan plan;
        plan.placement = candidate.placement;
        plan.peak_bytes = candidate.peak_bytes;
        return plan;
      };
    return [&job, &budgets, &placement = placements[i]] {
      return job.plan_to_fit(placement, budgets);
    };
  };
  parallel_in_order(placements.size(), job.threads(), begin, [&](size_t i, JobPlan plan) {
    if (over_budget.is_known(placements[i])) return true;  // by now
    const std::string over = over_budgets(config, plan, budgets);
    over_budget.note(placements[i], plan.peak_bytes);
    choice.candidates.push_back({placements[i], plan.peak_bytes, over});
    if (over.empty()) choice.plan = std::move(plan);
    return !over.empty();
  });
  // A plan made for a budget may take a little more than one made without a budget.
  for (size_t i = 0; i < choice.candidates.size() && !choice.plan; ++i) {
    const Placement placement = choice.candidates[i].placement;
    if (!job.moves(placement) ||
        !is_nearly_within(config, choice.candidates[i].peak_bytes, budgets))
      continue;
    for (const bool moves_ahead : {true, false}) {
      JobPlan plan = job.plan(placement, {}, moves_ahead);
      if (!over_budgets(config, plan, budgets).empty()) continue;
      choice.candidates.push_back({placement, plan.peak_bytes, ""});
      choice.plan = std::move(plan);
      break;
    }
  }
  if (!choice.plan) plan_those_with_room(job, budgets, over_budget, placements, choice);
  return choice;
}

}  // namespace

Choice find_fit(const Job& job, const Budgets& budgets) { return find_fit(job, budgets, {}); }

namespace {

// Returns the candidates that were planned under the budgets: those whose state alone fits.
std::vector<Candidate> planned_under(const Job& job, const Budgets& budgets,
                                     std::vector<Candidate> candidates) {
  std::erase_if(candidates, [&](const Candidate& c) {
    return first_over(job.config(), state_bytes(job, c.placement), budgets).has_value();
  });
  return candidates;
}

}  // namespace

JobPlan with_moves_ahead(const Job& job, JobPlan plan, const Budgets& budgets) {
  if (!job.moves(plan.placement)) return plan;
  JobPlan ahead = job.plan(plan.placement, budgets);
  return over_budgets(job.config(), ahead, budgets).empty() ? std::move(ahead) : std::move(plan);
}

DeviceDescriptionPtr device_to_plan_for(const TrainConfig& config,
                                        const std::optional<DeviceDescription>& device,
                                        bool is_named) {
  if (!device || !(is_named || config.mesh.size() == 1)) return nullptr;
  return std::make_shared<const DeviceDescription>(*device);
}

Choice choose_plan(const Job& job, const Budgets& budgets) {
  const ProgressScope progress("planning the job");
  const PlanningScope planning;
  const auto start = std::chrono::steady_clock::now();
  Choice choice = find_fastest(job, budgets);
  if (!choice.plan) {
    choice = find_fit(job, budgets, planned_under(job, budgets, std::move(choice.candidates)));
    if (!choice.plan) return choice;
    choice.plan = with_moves_ahead(job, std::move(*choice.plan), budgets);
    choice.candidates.back().peak_bytes = choice.plan->peak_bytes;
  }
  choice.plan->plan_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return choice;
}

}  // namespace stow
