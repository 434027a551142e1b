#include "stowage/session/layout.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "stowage/ops/verify.h"
#include "stowage/passes/repeat_summands.h"
#include "stowage/session/plan_score.h"

namespace stow {
namespace {

// Effort for each order; the best order is packed again with full effort.
constexpr PackEffort kOrderTrialEffort = {.work = 200'000};

}  // namespace

OrderedGraph::OrderedGraph(const Graph& graph, const LowerOptions& options)
    : graph_(options.fuse ? repeat_summands(graph) : graph), options_(options) {
  verify(graph_);
  options_.unit_cache = make_unit_cache();
  for (int s = 0; s < (options.reuse ? kNumOrderStrategies : 1); ++s) {
    options_.order = static_cast<OrderStrategy>(s);
    schedules_.push_back(lower(graph_, options_));
    bounds_.push_back(peak_bound(schedules_.back()));
  }
}

int64_t OrderedGraph::least_shortfall(const Device::Capacities& capacities) const {
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const PeakBound& bound : bounds_)
    least = std::min(least, shortfall(bound.bytes, capacities));
  return least;
}

int64_t OrderedGraph::least_device_bytes() const {
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const PeakBound& bound : bounds_) least = std::min(least, bound.bytes[0]);
  return least;
}

std::vector<std::optional<MemoryPlan>> OrderedGraph::trial_plans(
    const Device::Capacities& capacities) const {
  std::vector<std::optional<MemoryPlan>> plans(schedules_.size());
  std::vector<size_t> by_bound(schedules_.size());
  std::iota(by_bound.begin(), by_bound.end(), size_t{0});
  std::stable_sort(by_bound.begin(), by_bound.end(), [&](size_t a, size_t b) {
    return bounds_[a].bytes[0] < bounds_[b].bytes[0];
  });
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  int64_t least = kNone, least_short = kNone;  // `least`: bytes of the device, of those that fit
  for (const size_t s : by_bound) {
    // An order whose bound exceeds the best by more than 2 * kFewDeviceBytes loses to it in any
    // case.
    if (shortfall(bounds_[s].bytes, capacities) > least_short ||
        (least != kNone && bounds_[s].bytes[0] > least + 2 * kFewDeviceBytes))
      continue;
    plans[s] = options_.reuse ? make_plan(schedules_[s], kOrderTrialEffort)
                              : make_plan_without_reuse(schedules_[s]);
    const PlanScore score = score_of(plans[s]->analysis, capacities);
    least_short = std::min(least_short, score.shortfall);
    if (score.shortfall == 0) least = std::min(least, score.device_bytes);
  }
  return plans;
}

Planned OrderedGraph::lay_out(const Device::Capacities& capacities, LowerOptions& lowering) && {
  std::vector<std::optional<MemoryPlan>> plans = trial_plans(capacities);
  const auto is_better_plan = [&](const MemoryPlan& a, const MemoryPlan& b) {
    return is_better(score_of(a.analysis, capacities), score_of(b.analysis, capacities));
  };
  size_t best_order = plans.size();
  for (size_t s = 0; s < plans.size(); ++s)
    if (plans[s] && (best_order == plans.size() || is_better_plan(*plans[s], *plans[best_order])))
      best_order = s;
  MemoryPlan plan = std::move(*plans[best_order]);
  const auto take = [&](Schedule schedule, MemoryPlan laid_out, bool places_per_iteration) {
    lowering = options_;
    lowering.order = static_cast<OrderStrategy>(best_order);
    lowering.places_per_iteration = places_per_iteration;
    lowering.unit_cache = nullptr;
    return Planned{std::move(schedule), std::move(laid_out)};
  };
  if (!options_.reuse) return take(std::move(schedules_[best_order]), std::move(plan), false);
  if (gap(plan) > 0) {
    MemoryPlan better = make_plan(schedules_[best_order], kFinalEffort);
    if (better.arena_bytes[0] < plan.arena_bytes[0])
      plan = std::move(better);
    else
      plan.analysis.limits = std::move(better.analysis.limits);  // limits of the larger effort
  }
  // Another order may come lower with the same work if its bound allows.
  const size_t first = best_order;
  for (size_t s = 0; s < bounds_.size(); ++s) {
    const auto total = static_cast<double>(plan.analysis.device().total_bytes);
    if (s == first || static_cast<double>(bounds_[s].bytes[0]) >= (1 - kGoodGap) * total) continue;
    MemoryPlan other = make_plan(schedules_[s], kFinalEffort);
    if (!is_better_plan(other, plan)) continue;
    plan = std::move(other);
    best_order = s;
  }
  Planned best = take(std::move(schedules_[best_order]), std::move(plan), false);
  // A loop's temporaries have one place in all its iterations, and longer-lived values must fit
  // around them. If that loses much, each iteration gets places of its own, in the best order or,
  // if necessary, in another.
  const size_t n = bounds_.size(), starts_with = best_order;
  for (size_t s = 0; s < n && best.schedule.n_loops > 0 && gap(best.plan) > kGoodGap; ++s) {
    LowerOptions apart = options_;
    const size_t order = (starts_with + s) % n;
    apart.order = static_cast<OrderStrategy>(order);
    apart.places_per_iteration = true;
    Schedule schedule = lower(graph_, apart);
    MemoryPlan other = make_plan(schedule, kFinalEffort);
    if (!is_better_plan(other, best.plan)) continue;
    best_order = order;
    best = take(std::move(schedule), std::move(other), true);
  }
  return best;
}

}  // namespace stow
