#include "stowage/session/overlap.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <limits>
#include <optional>
#include <utility>

#include "stowage/passes/transfers.h"
#include "stowage/runtime/null/simulate.h"

namespace stow {
namespace {

// Layouts tried; each asks for less by twice what the one before was over.
constexpr int kMaxAttempts = 7;
// Of these so many after one that fits, where more or less might do better.
constexpr int kMaxRefinements = 3;
// Trials of one attempt; each costs a walk of the timeline.
constexpr int kMaxTrials = 100;
constexpr int64_t kMaxTrialInstants = 2'000'000;
constexpr PackEffort kHardEffort = {.work = kFinalEffort.work, .search_s = 1};
constexpr PackEffort kTrialEffort = {.work = kFinalEffort.work / 8, .search_s = 0.1};

// How far ahead: 0, 1, 2, 3, 5, 8, 13, 21, …
int more(int ahead, int most) {
  int before = 1, next = 1;
  while (next <= ahead) before = std::exchange(next, before + next);
  return std::min(most, next);
}
int less(int ahead) {
  int below = 0;
  while (more(below, ahead) < ahead) below = more(below, ahead);
  return below;
}

class Chooser {
 public:
  Chooser(const Schedule& schedule, size_t n_moves, int most)
      : schedule_(schedule), most_(most), ahead_(n_moves), least_(peak_bound(schedule).bytes) {}

  // All moves a few ahead; then those that live where it is too much less and less, then one half or
  // quarter of them further again, as far as asked for.
  void choose(const Device::Capacities& limits) {
    limits_ = limits;
    overtaking_bytes_ = 0;
    std::fill(ahead_.begin(), ahead_.end(), std::min(most_, kFewAhead));
    n_trials_ = 0;
    spent_ = 0;
    while (lower()) {
    }
    for (size_t kind = 0; kind < limits_.size(); ++kind)
      if (limits_[kind] < least_[kind]) return;
    for (int to = more(0, most_), from = 0; from < most_; from = to, to = more(to, most_))
      raise(from, to);
    overtake();
  }
  // What that comes to.
  const Device::Capacities& reached() const { return reached_; }
  bool any() const {
    return std::any_of(ahead_.begin(), ahead_.end(), [](int a) { return a > 0; });
  }
  Schedule schedule() const { return overlapped().schedule; }

 private:
  Overlapped overlapped() const { return overlap_transfers(schedule_, ahead_, overtaking_bytes_); }

  // Too much ahead of what comes later keeps that waiting: nothing, all that can, or a part of it.
  void overtake() {
    overtaking_bytes_ = std::numeric_limits<int64_t>::max();
    const int64_t most = overlapped().overtaking_bytes;
    overtaking_bytes_ = 0;
    if (most == 0) return;
    double least = nominal_step_s(schedule());
    int64_t best = 0;
    for (int eighths = 8; eighths > 0; eighths /= 2) {
      overtaking_bytes_ = most * eighths / 8;
      const Schedule trial = schedule();
      if (const double step = nominal_step_s(trial); step < least && fits(trial)) {
        least = step;
        best = overtaking_bytes_;
      }
    }
    overtaking_bytes_ = best;
  }

  // True where moves were lowered: those under way at an instant when more lives than may.
  bool lower() {
    const Schedule trial = schedule();
    const Lifetimes lifetimes = compute_lifetimes(trial);
    const size_t n = lifetimes.at.size();
    ++n_trials_;
    spent_ += static_cast<int64_t>(n);
    reached_ = bytes_beside_arena(trial);
    std::vector<bool> over(n, false);
    bool beyond = false;  // even what stays without any overlap
    for (size_t kind = 0; kind < limits_.size(); ++kind) {
      const std::vector<int64_t> live = live_bytes(trial, lifetimes, static_cast<MemoryKind>(kind));
      const int64_t room = limits_[kind] - reached_[kind];
      for (size_t t = 0; t < n; ++t)
        if (live[t] > room) over[t] = true;
      reached_[kind] += *std::max_element(live.begin(), live.end());
      beyond = beyond || reached_[kind] > std::max(limits_[kind], least_[kind]);
    }
    std::vector<bool> lowered = under_way(lifetimes, over);
    if (std::none_of(lowered.begin(), lowered.end(), std::identity())) {
      if (!beyond) return false;
      lowered.assign(lowered.size(), true);  // what moves share, as a bounce buffer
    }
    const bool tired = n_trials_ >= kMaxTrials / 4 || spent_ >= kMaxTrialInstants / 2;
    bool any = false;
    for (size_t m = 0; m < ahead_.size(); ++m) {
      if (!lowered[m] || ahead_[m] == 0) continue;
      ahead_[m] = tired ? 0 : less(ahead_[m]);
      any = true;
    }
    return any;
  }

  // The moves that are under way at any of these instants.
  std::vector<bool> under_way(const Lifetimes& lifetimes, const std::vector<bool>& at) const {
    std::vector<int64_t> n_before = {0};
    for (bool marked : at) n_before.push_back(n_before.back() + marked);
    std::vector<bool> found(ahead_.size(), false);
    std::vector<std::deque<size_t>> started(ahead_.size());
    for (size_t t = 0; t < lifetimes.at.size(); ++t) {
      const Kernel& kernel = *lifetimes.at[t];
      if (kernel.phase == MovePhase::kWhole) continue;
      const auto move = static_cast<size_t>(kernel.transfer);
      if (kernel.phase == MovePhase::kStart) {
        started[move].push_back(t);
      } else if (!started[move].empty()) {  // of a loop walked in part some are missing
        if (n_before[t + 1] > n_before[started[move].front()]) found[move] = true;
        started[move].pop_front();
      }
    }
    return found;
  }

  // Raises as many moves as can be from so many ahead to so many.
  void raise(int from, int to) {
    std::vector<size_t> moves;
    for (size_t m = 0; m < ahead_.size(); ++m)
      if (ahead_[m] == from) moves.push_back(m);
    try_all(moves, to);
  }
  // All of them; or, where that is too much, what goes of either half.
  void try_all(const std::vector<size_t>& moves, int ahead) {
    if (moves.empty() || n_trials_ >= kMaxTrials || spent_ >= kMaxTrialInstants) return;
    const std::vector<int> before = ahead_;
    for (size_t m : moves) ahead_[m] = ahead;
    if (fits(schedule())) return;
    ahead_ = before;
    if (moves.size() == 1) return;
    const auto middle = moves.begin() + static_cast<std::ptrdiff_t>(moves.size() / 2);
    try_all({moves.begin(), middle}, ahead);
    try_all({middle, moves.end()}, ahead);
  }

  // By the largest live sums, which a layout nearly reaches.
  bool fits(const Schedule& trial) {
    ++n_trials_;
    const PeakBound bound = peak_bound(trial);
    spent_ += bound.n_instants;
    for (size_t kind = 0; kind < limits_.size(); ++kind)
      if (bound.bytes[kind] > limits_[kind]) return false;
    reached_ = bound.bytes;
    return true;
  }

  const Schedule& schedule_;
  const int most_;
  Device::Capacities limits_{};
  std::vector<int> ahead_;
  int64_t overtaking_bytes_ = 0;
  const Device::Capacities least_;  // the largest live sums without any overlap
  Device::Capacities reached_{};    // and with the choice so far
  int n_trials_ = 0;
  int64_t spent_ = 0;
};

// A layout that fits, and what it takes beyond the bytes that are under way: gaps between them.
struct Fit {
  Planned planned;
  int64_t beyond = 0;
  int64_t bytes() const { return planned.plan.analysis.device().total_bytes; }
  // What is under way may cost its bytes and no more.
  bool is_better_than(const Fit& other) const {
    if (beyond > 0 || other.beyond > 0) return beyond < other.beyond;
    return nominal_step_s(planned.schedule) < nominal_step_s(other.planned.schedule);
  }
};

Planned overlap_up_to(int ahead, Planned planned, const Device::Capacities& capacities) {
  const size_t n_moves = count_moves(planned.schedule);
  const MemoryAnalysis& plain = planned.plan.analysis;
  Device::Capacities limits = capacities;
  for (size_t kind = 0; kind < limits.size(); ++kind) {
    const int64_t total = plain.kinds[kind].total_bytes;
    if (total > limits[kind]) return planned;
    if (limits[kind] >= Device::unlimited_bytes() && kind == 0) limits[kind] = total;
  }
  Chooser chooser(planned.schedule, n_moves, ahead);
  std::optional<Fit> best;
  Device::Capacities asked = limits;
  std::optional<Device::Capacities> fitted, refused;
  int n_refined = 0;
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    chooser.choose(asked);
    if (!chooser.any()) break;
    Fit fit{{chooser.schedule(), {}}};
    MemoryPlan& plan = fit.planned.plan;
    plan = make_plan(fit.planned.schedule, attempt == 0 ? kTrialEffort : kFinalEffort);
    const auto try_harder = [&](const PackEffort& effort) {
      if (MemoryPlan better = make_plan(fit.planned.schedule, effort); gap(better) < gap(plan))
        plan = std::move(better);
    };
    const auto beyond = [&] {
      return fit.bytes() - plain.device().total_bytes - plan.analysis.under_way_bytes;
    };
    if (attempt == 0 && gap(plan) > kGoodGap) try_harder(kFinalEffort);
    if (beyond() > 0) try_harder(kHardEffort);
    fit.beyond = std::max<int64_t>(beyond(), 0);
    Device::Capacities tighter = asked;
    bool fits = true;
    for (size_t kind = 0; kind < limits.size(); ++kind) {
      int64_t over = plan.analysis.kinds[kind].total_bytes - limits[kind];
      fits &= over <= 0;
      if (kind == 0) over = std::max(over, fit.beyond);
      if (over > 0)
        tighter[kind] = std::min(asked[kind], chooser.reached()[kind]) - (over << attempt);
    }
    (fits ? fitted : refused) = asked;
    const bool is_enough = fits && fit.beyond == 0 && !refused;
    if (fits && (!best || fit.is_better_than(*best))) best = std::move(fit);
    if (is_enough || (best && ++n_refined > kMaxRefinements)) break;
    asked = tighter;
    if (fitted && refused)  // between the two
      for (size_t kind = 0; kind < asked.size(); ++kind)
        asked[kind] = (*fitted)[kind] + ((*refused)[kind] - (*fitted)[kind]) / 2;
  }
  return best ? std::move(best->planned) : std::move(planned);
}

}  // namespace

double nominal_step_s(const Schedule& schedule) {
  DeviceDescription d;  // devices/h200.toml in round figures
  d.compute.f32_flops = 4e14;
  d.compute.bf16_flops = 8e14;
  d.compute.f64_flops = 5e13;
  d.compute.attention_achievable = 0.75;
  d.compute.vector_flops = 3e13;
  d.compute.special_flops = 4e12;
  d.compute.launch_s = 3e-6;
  d.memory.bandwidth = 4e12;
  d.link.to_device = d.link.to_host = 55e9;
  d.link.latency_s = 5e-6;
  d.disk.read = 6.5e9;
  d.disk.write = 4e9;
  d.disk.latency_s = 80e-6;
  Simulation at_nominal = simulate(schedule, d);
  const auto busy = [&](StreamKind s) { return at_nominal.stream(s).busy_s; };
  const double link = std::max(busy(StreamKind::kCopyIn), busy(StreamKind::kCopyOut));
  const double compute = busy(StreamKind::kCompute);
  if (link == 0 || compute == 0) return at_nominal.step_s;
  d.link.to_device = d.link.to_host = d.link.to_device * link / compute;
  return at_nominal.step_s + simulate(schedule, d).step_s;
}

Planned overlap(Planned planned, int ahead, const Device::Capacities& capacities) {
  if (ahead == 0 || count_moves(planned.schedule) == 0) return planned;
  // What one move takes for running far ahead another may lack for running at all; and where it wins
  // nothing, memory is worth more.
  constexpr int kFewer = 21;
  constexpr double kWorthIt = 0.999;
  Planned far = overlap_up_to(ahead, planned, capacities);
  if (ahead <= kFewer || capacities[0] >= Device::unlimited_bytes()) return far;
  Planned near = overlap_up_to(kFewer, std::move(planned), capacities);
  const bool is_worth_it =
      nominal_step_s(far.schedule) < kWorthIt * nominal_step_s(near.schedule);
  return is_worth_it ? far : near;
}

}  // namespace stow
