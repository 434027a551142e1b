#include "stowage/session/overlap.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <future>
#include <limits>
#include <optional>
#include <utility>

#include "stowage/passes/transfers.h"
#include "stowage/runtime/null/simulate.h"

namespace stow {
namespace {

// Layouts after one that fits, where more or less might do better.
constexpr int kMaxRefinements = 3;
// Choices of one attempt that are laid out.
constexpr size_t kMaxChoices = 4;
// So far ahead moves run wherever there is room; further only where that hides more.
constexpr int kCheap = 21;
// What is slower by less is not worth another search.
constexpr double kAsWell = 1.02;
// By slowness(): at this there is little left to hide.
constexpr double kWellHidden = 1.03;
constexpr PackEffort kHardEffort = {.work = kFinalEffort.work, .search_s = 0.5};
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

// devices/h200.toml in round figures.
DeviceDescription nominal_device() {
  DeviceDescription d;
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
  d.network = {{8, 360e9, 3e-6}, {int64_t{1} << 40, 46e9, 1e-5}};
  return d;
}

// It, and it with links and networks that take half, as much as and twice the time of a schedule's
// computation; the first alone where nothing is computed or moved.
std::vector<DeviceDescription> nominal_devices(const Schedule& schedule) {
  std::vector<DeviceDescription> devices = {nominal_device()};
  const Simulation s = simulate(schedule, devices[0]);
  const double link =
      std::max(s.stream(StreamKind::kCopyIn).busy_s, s.stream(StreamKind::kCopyOut).busy_s);
  const double network = s.stream(StreamKind::kCollective).busy_s;
  if (s.compute_busy_s() == 0 || (link == 0 && network == 0)) return devices;
  for (double share : {0.5, 1.0, 2.0}) {
    DeviceDescription d = devices[0];
    const double wanted_s = share * s.compute_busy_s();
    if (link > 0) d.link.to_device = d.link.to_host *= link / wanted_s;
    for (DeviceDescription::Network& level : d.network)
      if (network > 0) {
        level.bandwidth *= network / wanted_s;
        level.latency_s *= wanted_s / network;
      }
    devices.push_back(std::move(d));
  }
  return devices;
}

// How much longer than its busiest stream a step takes, the mean over these devices.
double slowness(const Schedule& schedule, const std::vector<DeviceDescription>& devices) {
  double sum = 0;
  for (const DeviceDescription& d : devices) {
    const Simulation s = simulate(schedule, d);
    sum += s.bound_s > 0 ? s.step_s / s.bound_s : 1;
  }
  return sum / static_cast<double>(devices.size());
}

// How far ahead each move runs, and what may overtake others.
struct Choice {
  std::vector<int> ahead;
  OvertakingBytes overtaking;
  Device::Capacities reached{};  // the largest live sums
  double slowness;

  bool moves_as(const Choice& other) const {
    return ahead == other.ahead && overtaking == other.overtaking;
  }
  bool any() const {
    return std::any_of(ahead.begin(), ahead.end(), [](int a) { return a > 0; });
  }
};

class Chooser {
 public:
  Chooser(const Schedule& schedule, size_t n_moves, int most, const OverlapLimits& bounds)
      : trials_(schedule),
        bounds_(bounds),
        devices_(nominal_devices(schedule)),
        most_(most),
        ahead_(n_moves) {
    const PeakBound bound = peak_bound(schedule);
    least_ = bound.bytes;
    n_instants_ = bound.n_instants;
  }

  // All moves a few ahead; then those that live where it is too much less and less, then one half or
  // quarter of them further again, as far as asked for. The best first, and what else was met on the
  // way.
  std::vector<Choice> choose(const Device::Capacities& limits) {
    limits_ = limits;
    overtaking_ = {};
    std::fill(ahead_.begin(), ahead_.end(), std::min(most_, kFewAhead));
    n_trials_ = 0;
    spent_ = work_ = 0;
    while (lower()) {
    }
    for (size_t kind = 0; kind < limits_.size(); ++kind)
      if (limits_[kind] < least_[kind])
        return {{ahead_, overtaking_, reached_, slowness(schedule())}};
    std::vector<Choice> choices;
    for (int from = 0, to = more(0, most_); from < most_; from = to, to = more(to, most_)) {
      if (to > kCheap && (work_ > bounds_.work || is_spent())) {
        is_cut_ = true;
        break;
      }
      raise(from, to);
      if (to < std::min(most_, kCheap)) continue;
      if (!choices.empty() && choices.back().ahead == ahead_) continue;
      const Device::Capacities reached = reached_;
      const double slow = overtake();
      choices.push_back({ahead_, overtaking_, reached_, slow});
      overtaking_ = {};
      reached_ = reached;
    }
    // Further ahead a move may take what another needs, and memory is worth something where nothing
    // is won.
    constexpr double kWorthIt = 0.999;
    auto best = choices.begin();
    for (auto c = choices.begin(); c != choices.end(); ++c)
      if (c->slowness < kWorthIt * best->slowness) best = c;
    std::rotate(choices.begin(), best, best + 1);
    std::stable_sort(choices.begin() + 1, choices.end(), [](const Choice& a, const Choice& b) {
      return a.slowness < b.slowness;
    });
    return choices;
  }
  // True if a bound of the work left anything untried.
  bool is_cut() const { return is_cut_; }
  Schedule schedule(const Choice& choice) const {
    return trials_.run(choice.ahead, choice.overtaking).schedule;
  }

 private:
  // True if later attempts do not try all that earlier ones did.
  bool is_spent() const { return total_ >= bounds_.instants; }
  Overlapped overlapped() {
    Overlapped made = trials_.run(ahead_, overtaking_);
    work_ += made.work;
    total_ += n_instants_;
    return made;
  }
  Schedule schedule() { return overlapped().schedule; }

  double slowness(const Schedule& schedule) const { return stow::slowness(schedule, devices_); }

  // Too much ahead of what comes later keeps that waiting: nothing, all that can, or a part of it.
  double overtake() {
    constexpr int64_t kAll = std::numeric_limits<int64_t>::max();
    double least = slowness(schedule());
    for (int64_t OvertakingBytes::*bytes : {&OvertakingBytes::early, &OvertakingBytes::late}) {
      overtaking_.*bytes = kAll;
      const int64_t most = overlapped().overtook.*bytes;
      int64_t best = 0;
      for (int eighths = most > 0 ? 8 : 0; eighths > 0; eighths /= 2) {
        overtaking_.*bytes = most * eighths / 8;
        const Schedule trial = schedule();
        if (const double slow = slowness(trial); slow < least && fits(trial)) {
          least = slow;
          best = overtaking_.*bytes;
        }
      }
      overtaking_.*bytes = best;
    }
    return least;
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
    const bool tired =
        n_trials_ >= bounds_.trials / 4 || spent_ >= bounds_.trial_instants / 2;
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
    if (moves.empty()) return;
    if (spent_ >= bounds_.trial_instants || is_spent()) {
      is_cut_ = true;
      return;
    }
    if (n_trials_ >= bounds_.trials) return;
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

  const TransferTrials trials_;
  const OverlapLimits& bounds_;
  const std::vector<DeviceDescription> devices_;
  const int most_;
  Device::Capacities limits_{};
  std::vector<int> ahead_;
  OvertakingBytes overtaking_;
  Device::Capacities least_{};      // the largest live sums without any overlap
  int64_t n_instants_ = 0;          // of a timeline without any
  Device::Capacities reached_{};    // and with the choice so far
  int n_trials_ = 0;
  int64_t spent_ = 0, work_ = 0;
  int64_t total_ = 0;  // instants of all trials of all attempts
  bool is_cut_ = false;
};

// A layout, and what it takes beyond the bytes that are under way: gaps between them.
struct Fit {
  Planned planned;
  int64_t beyond = 0;
  double slowness = 0;
  const MemoryAnalysis& analysis() const { return planned.plan.analysis; }
  // What is under way may cost its bytes and no more.
  bool is_better_than(const Fit& other) const {
    if (beyond > 0 || other.beyond > 0) return beyond < other.beyond;
    return slowness < other.slowness;
  }
};
// Where a hard limit is given there is nothing else to try, and it is worth some effort to fit.
Fit laid_out(Schedule schedule, double slowness, const MemoryAnalysis& plain, bool is_trial,
             std::optional<int64_t> hard_limit) {
  Fit fit{{std::move(schedule), {}}, 0, slowness};
  MemoryPlan& plan = fit.planned.plan;
  PackEffort effort = is_trial ? kTrialEffort : kFinalEffort;
  if (hard_limit) effort.search_s = 0;
  plan = make_plan(fit.planned.schedule, effort);
  const auto try_harder = [&](const PackEffort& effort) {
    if (MemoryPlan better = make_plan(fit.planned.schedule, effort); gap(better) < gap(plan))
      plan = std::move(better);
  };
  const auto over = [&](int64_t limit) { return plan.analysis.device().total_bytes - limit; };
  const int64_t allowed = plain.device().total_bytes + plan.analysis.under_way_bytes;
  if (is_trial && !hard_limit && gap(plan) > kGoodGap) try_harder(kFinalEffort);
  if (const int64_t limit = std::min(allowed, hard_limit.value_or(allowed)); over(limit) > 0) {
    effort = kHardEffort;
    effort.enough = plan.arena_bytes[0] - over(limit);
    try_harder(effort);
  }
  fit.beyond = std::max<int64_t>(over(allowed), 0);
  return fit;
}

Device::Capacities between(const Device::Capacities& a, const Device::Capacities& b) {
  Device::Capacities middle;
  for (size_t kind = 0; kind < middle.size(); ++kind)
    middle[kind] = a[kind] + (b[kind] - a[kind]) / 2;
  return middle;
}

// The best that was met within the limits; of each attempt so many choices are laid out at most.
// `gave_up`: no layout of as many as may be tried was within them.
std::optional<Fit> best_fit(const Schedule& schedule, int ahead, const Device::Capacities& limits,
                            const MemoryAnalysis& plain, size_t max_choices,
                            const std::function<Schedule()>& apart, int threads,
                            const OverlapLimits& bounds, bool& gave_up) {
  Chooser chooser(schedule, count_moves(schedule), ahead, bounds);
  std::optional<Fit> best, best_apart;
  // The search with iterations apart, beside the rest of this one where threads allow; and how slow
  // what it began for was.
  std::future<std::optional<Fit>> search_apart;
  double slowness_here = 0;
  // Whether that search is through with something to stay with, in which case no other counts.
  const auto apart_is_enough = [&](bool wait) {
    if (!search_apart.valid() ||
        (!wait && search_apart.wait_for(std::chrono::seconds(0)) == std::future_status::timeout))
      return false;
    best_apart = search_apart.get();
    return best_apart && best_apart->beyond == 0 && best_apart->slowness < kAsWell * slowness_here;
  };
  Device::Capacities asked = limits;
  std::optional<Device::Capacities> fitted, refused;
  std::optional<Choice> laid;  // the last that fitted
  int n_refined = 0, attempt = 0;
  for (; attempt < bounds.layouts; ++attempt) {
    if (apart_is_enough(false)) return best_apart;
    std::vector<Choice> choices = chooser.choose(asked);
    // More room may go to moves that do not need it; where little is hidden less is tried as well.
    if (attempt == 0 && choices[0].slowness > kWellHidden) {
      Device::Capacities less = asked;
      less[0] -= less[0] / 16;
      if (std::vector<Choice> others = chooser.choose(less);
          others[0].slowness < choices[0].slowness)
        choices = std::move(others);
    }
    if (!choices[0].any()) break;
    if (laid && choices[0].moves_as(*laid)) {
      fitted = asked;
      asked = between(*fitted, *refused);
      continue;
    }
    Device::Capacities reached = asked;
    for (size_t kind = 0; kind < limits.size(); ++kind)
      reached[kind] = std::min(asked[kind], choices[0].reached[kind]);
    std::optional<Device::Capacities> least_over;
    bool is_good = false;
    const size_t n_choices = std::min(choices.size(), max_choices);
    for (size_t c = 0; c < n_choices && !is_good; ++c) {
      Fit fit = laid_out(chooser.schedule(choices[c]), choices[c].slowness, plain, attempt == 0,
                         apart || c > 0 ? std::nullopt : std::optional(limits[0]));
      bool fits = true;
      Device::Capacities over{};
      for (size_t kind = 0; kind < limits.size(); ++kind) {
        over[kind] = std::max<int64_t>(fit.analysis().kinds[kind].total_bytes - limits[kind], 0);
        fits &= over[kind] == 0;
      }
      over[0] = std::max(over[0], fit.beyond);
      if (!least_over || over[0] < (*least_over)[0]) least_over = over;
      is_good = fits && fit.beyond == 0;
      // What is under way from one iteration to another stands in the way of what has one place in
      // all of them.
      if (attempt == 0 && c == 0 && !is_good && apart && gap(fit.planned.plan) > kGoodGap) {
        slowness_here = choices[c].slowness;
        search_apart = std::async(threads > 1 ? std::launch::async : std::launch::deferred, [&] {
          bool gave_up_apart = false;
          return best_fit(apart(), ahead, limits, plain, 1, {}, 1, bounds, gave_up_apart);
        });
        if (apart_is_enough(threads <= 1)) return best_apart;
      }
      if (fits && (!best || fit.is_better_than(*best))) best = std::move(fit);
    }
    Device::Capacities tighter = asked;
    for (size_t kind = 0; kind < limits.size(); ++kind)
      if (const int64_t over = (*least_over)[kind]; over > 0)
        tighter[kind] = reached[kind] - (over << attempt);
    (is_good ? fitted : refused) = is_good ? asked : reached;
    if (is_good) laid = choices[0];
    if ((is_good && !refused) || (best && ++n_refined > kMaxRefinements)) break;
    asked = fitted && refused ? between(*fitted, *refused) : tighter;
  }
  gave_up = !best && attempt == bounds.layouts;
  if (best && chooser.is_cut() && best->slowness > kWellHidden)
    best->planned.plan.analysis.limits.push_back(
        "overlap: choices of moves that run ahead were tried up to a limit of work; others may hide more");
  if (apart_is_enough(true)) return best_apart;
  return best && !(best_apart && best_apart->is_better_than(*best)) ? best : best_apart;
}

}  // namespace

bool hides_well(const Schedule& schedule) {
  return slowness(schedule, nominal_devices(schedule)) <= kWellHidden;
}

double time_beside(const Schedule& schedule, const Schedule& other) {
  const std::vector<DeviceDescription> devices = nominal_devices(other);
  double sum = 0;
  for (const DeviceDescription& d : devices) {
    const double step_s = simulate(other, d).step_s;
    sum += step_s > 0 ? simulate(schedule, d).step_s / step_s : 1;
  }
  return sum / static_cast<double>(devices.size());
}

StepTimes::StepTimes(const Schedule& reference) : devices_(nominal_devices(reference)) {
  for (const DeviceDescription& d : devices_) bounds_s_.push_back(simulate(reference, d).bound_s);
}

double StepTimes::step(const Schedule& schedule) const {
  double sum = 0;
  for (size_t d = 0; d < devices_.size(); ++d)
    sum += bounds_s_[d] > 0 ? simulate(schedule, devices_[d]).step_s / bounds_s_[d] : 1;
  return sum / static_cast<double>(devices_.size());
}

double StepTimes::bound(const Schedule& schedule) const {
  double sum = 0;
  for (size_t d = 0; d < devices_.size(); ++d)
    sum += bounds_s_[d] > 0 ? simulate(schedule, devices_[d]).bound_s / bounds_s_[d] : 1;
  return sum / static_cast<double>(devices_.size());
}

Schedule with_few_ahead(const Schedule& schedule, const Device::Capacities& capacities) {
  const size_t n_moves = count_moves(schedule);
  if (n_moves == 0) return schedule;
  const OverlapLimits bounds;
  Chooser chooser(schedule, n_moves, kFewAhead, bounds);
  return chooser.schedule(chooser.choose(capacities)[0]);
}

Planned overlap(Planned planned, int ahead, const Device::Capacities& capacities,
                const std::function<Schedule()>& apart, int threads,
                const OverlapLimits& bounds) {
  if (ahead <= 0 || count_moves(planned.schedule) == 0) return planned;
  const MemoryAnalysis& plain = planned.plan.analysis;
  Device::Capacities limits = capacities;
  for (size_t kind = 0; kind < limits.size(); ++kind) {
    const int64_t total = plain.kinds[kind].total_bytes;
    if (total > limits[kind]) return planned;
    if (limits[kind] >= Device::unlimited_bytes() && kind == 0) limits[kind] = total;
  }
  bool gave_up = false;
  std::optional<Fit> best = best_fit(planned.schedule, ahead, limits, plain, kMaxChoices, apart, threads,
                                     bounds, gave_up);
  if (best) return std::move(best->planned);
  if (gave_up)
    planned.plan.analysis.limits.push_back(fmt::format(
        "overlap: none of {} layouts of moves that run ahead fitted, so none does; another may fit",
        bounds.layouts));
  return planned;
}

}  // namespace stow
