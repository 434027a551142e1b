#include "stowage/train/fastest.h"

#include <algorithm>
#include <functional>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "stowage/base/parallel_in_order.h"
#include "stowage/runtime/null/simulate.h"
#include "stowage/runtime/target.h"
#include "stowage/session/overlap.h"
#include "stowage/session/plan_score.h"
#include "stowage/session/plan_search.h"
#include "stowage/train/fit.h"

namespace stow {
namespace {

// A placement is planned only if the bound of its step is below this many times the best step. A
// step that is shorter by a hundredth is not worth a plan: on the benchmarks' models this halves
// the time of planning where a large budget leaves little to gain, and changes no choice.
constexpr double kWorthwhile = 0.99;

// Bytes of a placement's state by what they are, each counted where it leaves the device.
struct MovedState {
  double parameters = 0, gradients = 0, rest = 0, frozen = 0;
  double sum() const { return parameters + gradients + rest + frozen; }
};
MovedState moved_state(const Job& job, const Placement& p) {
  const auto bytes_of = [](std::span<const StateLeaf> leaves) {
    double bytes = 0;
    for (const StateLeaf& leaf : leaves)
      if (leaf.part.shape.rank() > 0) bytes += static_cast<double>(leaf.part.bytes());
    return bytes;
  };
  const auto is_away = [](MemoryKind kind) { return kind != MemoryKind::kDevice; };
  const std::span<const StateLeaf> state(job.state());
  const double parameters = bytes_of(state.first(job.n_model_leaves()));
  MovedState moved;
  if (is_away(p.parameters)) moved.parameters = parameters;
  if (is_away(p.gradients)) moved.gradients = parameters;
  if (is_away(p.optimizer)) moved.rest = bytes_of(state.subspan(job.n_model_leaves()));
  if (is_away(p.frozen)) moved.frozen = bytes_of(job.frozen());
  return moved;
}

// Seconds that the state keeps each stream busy. Weights come in for the forward and for the
// backward pass; all else goes each way once, at the least.
std::array<double, kNumStreams> state_traffic(const Job& job, const Placement& p,
                                              const DeviceDescription& device) {
  std::array<double, kNumStreams> busy{};
  const auto move = [&](MemoryKind kind, double bytes, int in, int out) {
    if (bytes == 0) return;
    const auto add = [&](MemoryKind from, MemoryKind to, int times) {
      busy[static_cast<size_t>(stream_of(from, to))] +=
          times * move_seconds(device, from, to, bytes);
    };
    add(kind, MemoryKind::kDevice, in);
    add(MemoryKind::kDevice, kind, out);
  };
  const MovedState moved = moved_state(job, p);
  move(p.parameters, moved.parameters, 2, 1);
  move(p.gradients, moved.gradients, 1, 1);
  move(p.optimizer, moved.rest, 1, 1);
  move(p.frozen, moved.frozen, 2, 0);
  return busy;
}

// Seconds of the busiest stream of a simulated step of `base` with the additional moves of
// `placement`.
double busiest_s(const Simulation& of_base, const Job& job, const Placement& base,
                 const Placement& placement, const DeviceDescription& device) {
  const auto before = state_traffic(job, base, device);
  const auto now = state_traffic(job, placement, device);
  double longest = 0;
  for (size_t s = 0; s < now.size(); ++s)
    longest = std::max(longest, of_base.streams[s].busy_s + now[s] - before[s]);
  return longest;
}

// The same computation, whatever memory its state lies in.
Placement work_of(Placement p) {
  p.optimizer = p.parameters = p.gradients = p.frozen = MemoryKind::kDevice;
  return p;
}

class FastestSearch {
 public:
  FastestSearch(const Job& job, const Budgets& budgets)
      : job_(job),
        config_(job.config()),
        budgets_(budgets),
        device_(*job.target()->description()),
        placements_(open_placements(config_, job.model().sizes())),
        over_budget_(config_, budgets) {
    find_works();
  }

  Choice run() {
    search();
    // The estimates may be wrong where nothing fits.
    if (fitting_.empty()) {
      open_ = std::move(passed_over_);
      search();
    }
    return choose();
  }

 private:
  void search() {
    while (!is_settled_) {
      std::erase_if(open_, [&](const Open& o) { return is_passed_over(o); });
      if (open_.empty()) break;
      std::stable_sort(open_.begin(), open_.end(),
                       [](const Open& a, const Open& b) { return a.least_s < b.least_s; });
      // The shortest first; more than one where threads allow.
      const size_t n = std::min(open_.size(), static_cast<size_t>(std::max(job_.threads(), 1)));
      const std::vector<Open> now(open_.begin(), open_.begin() + static_cast<std::ptrdiff_t>(n));
      open_.erase(open_.begin(), open_.begin() + static_cast<std::ptrdiff_t>(n));
      parallel_in_order(
          n, job_.threads(),
          [&](size_t i) {
            return std::optional<std::function<JobPlan()>>([this, &p = *now[i].placement] {
              return has_room(p) ? job_.plan_to_fit(p, budgets_) : job_.plan(p, {}, false);
            });
          },
          [&](size_t i, JobPlan plan) {
            if (works_[now[i].work].base == now[i].placement) open_work(now[i].work, plan);
            take(std::move(plan));
            return true;
          });
    }
  }

  // Placements that compute alike.
  struct Work {
    const Placement* base;              // that moves least, and is planned first
    std::vector<const Placement*> rest;
    std::vector<size_t> no_shorter;     // works that compute no less
  };
  // A placement to be planned: its step takes no less than that.
  struct Open {
    const Placement* placement;
    size_t work;
    double least_s;
  };
  // A plan that fits. Until it is searched it has no moves ahead.
  struct Fitting {
    JobPlan plan;
    // Before its search: with few moves ahead, which is nearly an upper bound of the step after it.
    double step_s;
    double expected_s;  // After its search.
    bool is_searched = false;
  };

  void find_works() {
    for (const Placement& p : placements_) {
      const auto same = std::find_if(works_.begin(), works_.end(), [&](const Work& w) {
        return work_of(*w.base) == work_of(p);
      });
      if (same == works_.end()) {
        works_.push_back({&p, {}, {}});
      } else if (moved_state(job_, p).sum() < moved_state(job_, *same->base).sum()) {
        same->rest.push_back(std::exchange(same->base, &p));
      } else {
        same->rest.push_back(&p);
      }
    }
    for (size_t w = 0; w < works_.size(); ++w) {
      if (const std::optional<size_t> less = computes_less(w))
        works_[*less].no_shorter.push_back(w);
      else
        open_.push_back({works_[w].base, w, 0});
    }
    if (open_.size() == 1) least_work_ = open_[0].work;
  }
  // The nearest work that this one computes no less than: without chunks, and under the policies
  // that recompute less.
  std::optional<size_t> computes_less(size_t w) const {
    Placement p = work_of(*works_[w].base);
    const auto find = [&](const Placement& like) -> std::optional<size_t> {
      for (size_t i = 0; i < works_.size(); ++i) {
        Placement other = work_of(*works_[i].base);
        other.activations = like.activations;  // its moves do not count
        if (i != w && other == like) return i;
      }
      return std::nullopt;
    };
    if (p.chunked || p.chunked_loss) {
      Placement whole = p;
      whole.chunked = false;
      if (const auto found = find(whole)) return found;
      whole.chunked_loss = false;
      if (const auto found = find(whole)) return found;
    }
    while (traits_of(p.policy).computes_no_less_than != p.policy) {
      p.policy = traits_of(p.policy).computes_no_less_than;
      if (const auto found = find(p)) return found;
      Placement whole = p;
      whole.chunked = whole.chunked_loss = false;
      if (const auto found = find(whole)) return found;
    }
    return std::nullopt;
  }

  // The base of a work is planned: what else is worth planning is known by it.
  void open_work(size_t w, const JobPlan& base) {
    const Simulation of_base = simulate(base.programs.step->schedule(), device_);
    for (const size_t other : works_[w].no_shorter)
      open_.push_back({works_[other].base, other, of_base.compute_busy_s()});
    for (const Placement* p : works_[w].rest) {
      if (!has_room(*p)) continue;
      const bool is_too_large = budgets_[0] && least_device_bytes(job_, base, *p) > *budgets_[0];
      (is_too_large ? passed_over_ : open_)
          .push_back({p, w, busiest_s(of_base, job_, base.placement, *p, device_)});
    }
    // Nothing else can be faster than what computes and moves least. If it moves anything, a budget
    // for the device may leave too little room to hide that.
    if (w == least_work_ && (is_all_on_device(base.placement) || !budgets_[0]) &&
        over_budgets(config_, base, budgets_).empty())
      is_settled_ = true;
  }
  bool is_passed_over(const Open& o) const {
    if (!fitting_.empty() && kWorthwhile * best_s_ <= o.least_s) return true;
    return o.placement != works_[o.work].base && over_budget_.is_known(*o.placement);
  }

  double step_s(const JobPlan& plan) const {
    return simulate(plan.programs.step->schedule(), device_).step_s;
  }
  // The share of the device's budget that a plan leaves; 0 without a budget.
  double spare_share(const JobPlan& plan) const {
    if (!budgets_[0]) return 0;
    const auto budget = static_cast<double>(*budgets_[0]);
    const auto needs = static_cast<double>(budgeted_bytes(config_, plan.peak_bytes)[0]);
    return std::max(0.0, 1 - needs / budget);
  }
  // The step with few moves ahead.
  double few_ahead_s(const JobPlan& plan) const {
    // As a full search has them: without a budget, moves ahead do not raise the peak.
    const Budgets budgets = budgets_of_programs(config_, budgets_);
    Device::Capacities capacities;
    for (size_t kind = 0; kind < capacities.size(); ++kind)
      capacities[kind] = budgets[kind].value_or(Device::unlimited_bytes());
    if (!budgets[0])
      capacities[0] = plan.programs.step->memory_analysis().device().total_bytes;
    const Schedule ahead =
        with_few_ahead(plan.programs.step->schedule(), capacities, device_);
    return simulate(ahead, device_).step_s;
  }

  // True if the state that lies on the device leaves room there for anything else.
  bool has_room(const Placement& p) const {
    return !first_over(config_, state_bytes(job_, p), budgets_);
  }

  void take(JobPlan plan) {
    over_budget_.note(plan.placement, plan.peak_bytes);
    std::string over = over_budgets(config_, plan, budgets_);
    if (over.empty()) {
      const Simulation plain = simulate(plan.programs.step->schedule(), device_);
      const double s = job_.moves(plan.placement) ? few_ahead_s(plan) : plain.step_s;
      best_s_ = fitting_.empty() ? s : std::min(best_s_, s);
      const double expected_s = expected_step_s(s, plain.bound_s, spare_share(plan));
      fitting_.push_back({std::move(plan), s, expected_s});
    } else {
      choice_.candidates.push_back({plan.placement, plan.peak_bytes, std::move(over)});
    }
  }

  PlanScore score_of(const Fitting& f) const {
    const BytesByKind needs = budgeted_bytes(config_, f.plan.peak_bytes);
    return {.shortfall = 0,
            .step_s = f.step_s,
            .device_bytes = needs[0],
            .other_bytes = needs[1] + needs[2]};
  }
  // The index of the plan that moves least among those that compute as `p`; none if that is p.
  std::optional<size_t> fitting_base_of(const Placement& p) const {
    const auto moved = [&](const Placement& q) { return moved_state(job_, q).sum(); };
    std::optional<size_t> least;
    double least_moved = moved(p);
    for (size_t i = 0; i < fitting_.size(); ++i) {
      const Placement& q = fitting_[i].plan.placement;
      if (work_of(q) != work_of(p) || moved(q) >= least_moved) continue;
      least = i;
      least_moved = moved(q);
    }
    return least;
  }

  Choice choose() {
    if (fitting_.empty()) return std::move(choice_);
    std::stable_sort(fitting_.begin(), fitting_.end(), [](const Fitting& a, const Fitting& b) {
      return a.expected_s < b.expected_s;
    });
    // A full search of a plan is most of the work, so few plans get one.
    const size_t n_expected = PlanSearchLimits().expected_placements;
    size_t best = 0, n_searched = 0;
    const auto search_fully = [&](size_t i) {
      Fitting& f = fitting_[i];
      if (std::exchange(f.is_searched, true)) return;
      f.plan = with_moves_ahead(job_, std::move(f.plan), budgets_);
      f.step_s = step_s(f.plan);
      ++n_searched;
      if (is_better(score_of(f), score_of(fitting_[best]))) best = i;
    };
    for (size_t i = 0; i < fitting_.size(); ++i) {
      const double hoped_s = i < n_expected ? fitting_[i].expected_s : fitting_[i].step_s;
      if (i == 0 || hoped_s < fitting_[best].step_s) search_fully(i);
    }
    // The placement of the same work that moves least may gain more than is expected of it.
    if (n_searched < n_expected)
      if (const std::optional<size_t> least = fitting_base_of(fitting_[best].plan.placement))
        search_fully(*least);
    Fitting chosen = std::move(fitting_[best]);
    fitting_.erase(fitting_.begin() + static_cast<std::ptrdiff_t>(best));
    std::stable_sort(fitting_.begin(), fitting_.end(),
                     [](const Fitting& a, const Fitting& b) { return a.step_s > b.step_s; });
    for (const Fitting& f : fitting_)
      choice_.candidates.push_back({f.plan.placement, f.plan.peak_bytes,
                                    fmt::format("fits, and a step takes about {:.2f} times as long",
                                                f.step_s / chosen.step_s)});
    choice_.plan = std::move(chosen.plan);
    choice_.candidates.push_back({choice_.plan->placement, choice_.plan->peak_bytes, ""});
    choice_.is_fastest = true;
    return std::move(choice_);
  }

  const Job& job_;
  const TrainConfig& config_;
  const Budgets& budgets_;
  const DeviceDescription& device_;
  const std::vector<Placement> placements_;
  OverBudgetPlacements over_budget_;
  std::vector<Work> works_;
  std::optional<size_t> least_work_;  // that all others compute no less than
  std::vector<Open> open_;
  std::vector<Open> passed_over_;  // that have room for their state, and should be too large
  std::vector<Fitting> fitting_;
  double best_s_ = 0;  // of `fitting_`
  bool is_settled_ = false;
  Choice choice_;
};

}  // namespace

int64_t least_device_bytes(const Job& job, const JobPlan& base, const Placement& placement) {
  const double more = moved_state(job, placement).sum() - moved_state(job, base.placement).sum();
  return budgeted_bytes(job.config(), base.peak_bytes)[0] - static_cast<int64_t>(more);
}

double least_step_s(const Job& job, const JobPlan& base, const Placement& placement,
                    const DeviceDescription& device) {
  return busiest_s(simulate(base.programs.step->schedule(), device), job, base.placement, placement,
                   device);
}

double expected_step_s(double few_ahead_s, double least_s, double spare) {
  return few_ahead_s - spare * (few_ahead_s - least_s);
}

Choice find_fastest(const Job& job, const Budgets& budgets) {
  return FastestSearch(job, budgets).run();
}

}  // namespace stow
