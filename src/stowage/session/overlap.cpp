#include "stowage/session/overlap.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <future>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "stowage/passes/transfers.h"
#include "stowage/runtime/null/simulate.h"
#include "stowage/session/plan_score.h"

namespace stow {
namespace {

// Most layouts that are tried, with more or less room, after one that fits.
constexpr int kMaxRefinements = 3;
// Choices of one attempt that are laid out.
constexpr size_t kMaxChoices = 4;
// Moves run this far ahead if there is room, and further only if that hides more time.
constexpr int kCheap = 21;
// If a smaller request changes no choice, the next one asks for at least 1 / kRepeatedParts of the
// reached bytes less.
constexpr int64_t kRepeatedParts = 4096;
// An attempt lowers moves step by step until it has used 1 / kLoweringPartOfTrials of its trials or
// 1 / kLoweringPartOfInstants of their instants, and then to none at once: the rest is for raising
// them.
constexpr int kLoweringPartOfTrials = 4;
constexpr int64_t kLoweringPartOfInstants = 2;
// If little is hidden, a choice for a device that is smaller by 1 / kLessRoomPart is tried as well:
// the part is large enough for another choice, and small enough for one that still hides moves.
constexpr int64_t kLessRoomPart = 16;
// A plan that is slower by less than this factor is not worth another search.
constexpr double kAsWell = 1.02;
constexpr PackEffort kHardEffort = {.work = kFinalEffort.work, .search_s = 0.5};
// Of the first layout, which shows how many bytes are too many; the later ones get all effort.
constexpr PackEffort kFirstLayoutEffort = {.work = kFinalEffort.work / 8, .search_s = 0.1};

// Returns the next number of moves ahead after `ahead`: 0, 1, 2, 3, 5, 8, 13, 21, …
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

// How far ahead each move runs, and how many bytes may overtake others.
struct Choice {
  std::vector<int> ahead;
  OvertakingBytes overtaking;
  Device::Capacities reached{};  // the largest live sums
  double step_s;

  bool moves_as(const Choice& other) const {
    return ahead == other.ahead && overtaking == other.overtaking;
  }
  bool any() const {
    return std::any_of(ahead.begin(), ahead.end(), [](int a) { return a > 0; });
  }
};

// Answers maximum queries over ranges of a list in logarithmic time.
class RangeMaximum {
 public:
  explicit RangeMaximum(const std::vector<int64_t>& list) : n_(list.size()), tree_(2 * n_) {
    std::copy(list.begin(), list.end(), tree_.begin() + static_cast<std::ptrdiff_t>(n_));
    for (size_t i = n_; i-- > 1;) tree_[i] = std::max(tree_[2 * i], tree_[2 * i + 1]);
  }
  int64_t of_all() const { return of(0, n_); }
  /// Returns the maximum of [begin, end), which is not empty.
  int64_t of(size_t begin, size_t end) const {
    int64_t most = std::numeric_limits<int64_t>::min();
    for (begin += n_, end += n_; begin < end; begin /= 2, end /= 2) {
      if (begin % 2 == 1) most = std::max(most, tree_[begin++]);
      if (end % 2 == 1) most = std::max(most, tree_[--end]);
    }
    return most;
  }

 private:
  size_t n_;
  std::vector<int64_t> tree_;
};

class Chooser {
 public:
  Chooser(const Schedule& schedule, size_t n_moves, int most, const DeviceDescription& device,
          const OverlapLimits& bounds)
      : trials_(schedule),
        bounds_(bounds),
        device_(device),
        most_(most),
        ahead_(n_moves) {
    const PeakBound bound = peak_bound(schedule);
    least_ = bound.bytes;
    n_instants_ = bound.n_instants;
  }

  // Returns choices, the best first. Starts with all moves a few ahead. Lowers the moves that are
  // under way where too much is live. Then raises all moves, or halves and quarters of them, up to
  // the number asked for.
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
        return {{ahead_, overtaking_, reached_, step_s(trial())}};
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
      const double step_s = overtake();
      choices.push_back({ahead_, overtaking_, reached_, step_s});
      overtaking_ = {};
      reached_ = reached;
    }
    // Moves further ahead may take memory that other moves need. A choice further ahead must
    // therefore be faster by this factor.
    constexpr double kWorthIt = 0.999;
    auto best = choices.begin();
    for (auto c = choices.begin(); c != choices.end(); ++c)
      if (c->step_s < kWorthIt * best->step_s) best = c;
    std::rotate(choices.begin(), best, best + 1);
    std::stable_sort(choices.begin() + 1, choices.end(), [](const Choice& a, const Choice& b) {
      return a.step_s < b.step_s;
    });
    return choices;
  }
  // True if a bound of the work left some choices untried.
  bool is_cut() const { return is_cut_; }
  Schedule schedule(const Choice& choice) const {
    return trials_.run(choice.ahead, choice.overtaking).schedule;
  }

 private:
  // Largest size of known_, in numbers of moves: about 50 MB.
  static constexpr size_t kMostKnown = 2'000'000;
  // The properties of one choice's schedule that were asked for. Attempts differ only in their
  // limits, so they meet most choices again.
  struct Trial {
    OvertakingBytes overtook;
    int64_t work = 0;
    std::optional<PeakBound> bound;
    std::optional<double> step_s;
    std::vector<BytesByKind> beside_moves;  // see most_beside_moves
  };
  using Key = std::tuple<std::vector<int>, int64_t, int64_t>;
  Key key() const { return {ahead_, overtaking_.early, overtaking_.late}; }

  // True if later attempts do not try all that earlier ones did.
  bool is_spent() const { return total_ >= bounds_.total_instants; }
  // Returns the trial of the current choice. A known trial counts as work too, so bounds have the
  // same effect whether trials are kept or not.
  Trial& trial() {
    if (known_.size() * ahead_.size() > kMostKnown) {
      known_.clear();
      last_.of = fitting_.of = nullptr;
    }
    const auto [at, is_new] = known_.try_emplace(key());
    if (is_new) make(at->second);
    work_ += at->second.work;
    total_ += n_instants_;
    return at->second;
  }
  void make(Trial& trial) {
    Overlapped overlapped = trials_.run(ahead_, overtaking_, std::move(last_.schedule));
    trial.overtook = overlapped.overtook;
    trial.work = overlapped.work;
    last_ = {std::move(overlapped.schedule), &trial};
  }
  // Returns the schedule of a trial, which must be that of the current choice.
  const Schedule& schedule_of(Trial& trial) {
    if (fitting_.of == &trial) return fitting_.schedule;
    if (last_.of != &trial) make(trial);
    return last_.schedule;
  }
  const PeakBound& bound_of(Trial& trial) {
    if (!trial.bound) trial.bound = peak_bound(schedule_of(trial));
    return *trial.bound;
  }
  double step_s(Trial& trial) {
    if (!trial.step_s) trial.step_s = simulate(schedule_of(trial), device_).step_s;
    return *trial.step_s;
  }
  // Returns the number of bytes that overtake if any number may. A bound of that number gives the
  // same schedule, so its trial is entered as known.
  int64_t most_overtaking(int64_t OvertakingBytes::*bytes) {
    overtaking_.*bytes = std::numeric_limits<int64_t>::max();
    const Trial all = trial();
    const bool is_made = last_.of == &known_.at(key());
    overtaking_.*bytes = all.overtook.*bytes;
    const auto [at, is_new] = known_.try_emplace(key(), all);
    if (is_new && is_made) last_.of = &at->second;
    return all.overtook.*bytes;
  }

  // A move that runs too far ahead delays the moves after it. Tries bounds of the overtaking bytes:
  // none, all that can overtake, and parts of these. Keeps the fastest and returns its step.
  double overtake() {
    double least_s = step_s(trial());
    for (int64_t OvertakingBytes::*bytes : {&OvertakingBytes::early, &OvertakingBytes::late}) {
      const int64_t most = most_overtaking(bytes);
      int64_t best = 0;
      for (int eighths = most > 0 ? 8 : 0; eighths > 0; eighths /= 2) {
        overtaking_.*bytes = most * eighths / 8;
        Trial& tried = trial();
        if (const double s = step_s(tried); s < least_s && fits(tried)) {
          least_s = s;
          best = overtaking_.*bytes;
        }
      }
      overtaking_.*bytes = best;
    }
    return least_s;
  }

  // Lowers the moves that are under way at instants when too much is live. Returns true if it
  // lowered any.
  bool lower() {
    Trial& tried = trial();
    if (!tried.bound || (!is_within_limits(*tried.bound) && tried.beside_moves.empty()))
      most_beside_moves(tried);
    count(*tried.bound);
    reached_ = tried.bound->bytes;
    if (is_within_limits(*tried.bound)) return false;
    bool beyond = false;  // even what stays without any overlap
    for (size_t kind = 0; kind < limits_.size(); ++kind)
      beyond = beyond || reached_[kind] > std::max(limits_[kind], least_[kind]);
    std::vector<bool> lowered(ahead_.size(), false);
    bool any_under_way = false;
    for (size_t m = 0; m < lowered.size(); ++m)
      for (size_t kind = 0; kind < limits_.size(); ++kind)
        if (tried.beside_moves[m][kind] > limits_[kind]) any_under_way = lowered[m] = true;
    if (!any_under_way) {
      if (!beyond) return false;
      lowered.assign(lowered.size(), true);  // they share memory, such as a bounce buffer
    }
    const bool tired = n_trials_ >= bounds_.trials / kLoweringPartOfTrials ||
                       spent_ >= bounds_.trial_instants / kLoweringPartOfInstants;
    bool any = false;
    for (size_t m = 0; m < ahead_.size(); ++m) {
      if (!lowered[m] || ahead_[m] == 0) continue;
      ahead_[m] = tired ? 0 : less(ahead_[m]);
      any = true;
    }
    return any;
  }

  // Fills in the trial's bound and, by move and kind, the most bytes that are live while the move
  // is under way; 0 if it never is.
  void most_beside_moves(Trial& trial) {
    const Schedule& schedule = schedule_of(trial);
    const Lifetimes lifetimes = compute_lifetimes(schedule);
    const BytesByKind beside = bytes_outside_arena(schedule);
    trial.bound = PeakBound{beside, static_cast<int64_t>(lifetimes.at.size())};
    trial.beside_moves.assign(ahead_.size(), BytesByKind{});
    const std::vector<UnderWay> all = under_way(lifetimes);
    for (size_t kind = 0; kind < beside.size(); ++kind) {
      const RangeMaximum live(live_bytes(schedule, lifetimes, static_cast<MemoryKind>(kind)));
      trial.bound->bytes[kind] += live.of_all();
      for (const UnderWay& u : all) {
        int64_t& most = trial.beside_moves[u.move][kind];
        most = std::max(most, beside[kind] + live.of(u.begin, u.end));
      }
    }
  }

  // A run of a move: the instants from its start to its done, half-open.
  struct UnderWay {
    size_t move, begin, end;
  };
  std::vector<UnderWay> under_way(const Lifetimes& lifetimes) const {
    std::vector<UnderWay> found;
    std::vector<std::deque<size_t>> started(ahead_.size());
    for (size_t t = 0; t < lifetimes.at.size(); ++t) {
      const Kernel& kernel = *lifetimes.at[t];
      if (kernel.phase == MovePhase::kWhole) continue;
      const auto move = static_cast<size_t>(kernel.transfer);
      if (kernel.phase == MovePhase::kStart) {
        started[move].push_back(t);
      } else if (!started[move].empty()) {  // of a loop walked in part some are missing
        found.push_back({move, started[move].front(), t + 1});
        started[move].pop_front();
      }
    }
    return found;
  }

  // Raises as many moves as possible from `from` ahead to `to` ahead.
  void raise(int from, int to) {
    std::vector<size_t> moves;
    for (size_t m = 0; m < ahead_.size(); ++m)
      if (ahead_[m] == from) moves.push_back(m);
    try_all(moves, to);
  }
  // Raises all of these moves; if that does not fit, tries each half of them.
  void try_all(const std::vector<size_t>& moves, int ahead) {
    if (moves.empty()) return;
    if (spent_ >= bounds_.trial_instants || is_spent()) {
      is_cut_ = true;
      return;
    }
    if (n_trials_ >= bounds_.trials) return;
    const std::vector<int> before = ahead_;
    for (size_t m : moves) ahead_[m] = ahead;
    if (fits(trial())) return;
    ahead_ = before;
    if (moves.size() == 1) return;
    const auto middle = moves.begin() + static_cast<std::ptrdiff_t>(moves.size() / 2);
    try_all({moves.begin(), middle}, ahead);
    try_all({middle, moves.end()}, ahead);
  }

  // True if the largest live sums, which a layout nearly reaches, are within the limits.
  bool fits(Trial& trial) {
    const PeakBound& bound = bound_of(trial);
    count(bound);
    if (!is_within_limits(bound)) return false;
    reached_ = bound.bytes;
    if (last_.of == &trial) std::swap(last_, fitting_);  // it will be asked for again
    return true;
  }
  bool is_within_limits(const PeakBound& bound) const {
    for (size_t kind = 0; kind < limits_.size(); ++kind)
      if (bound.bytes[kind] > limits_[kind]) return false;
    return true;
  }
  void count(const PeakBound& bound) {
    ++n_trials_;
    spent_ += bound.n_instants;
  }

  const TransferTrials trials_;
  const OverlapLimits& bounds_;
  const DeviceDescription& device_;
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
  std::map<Key, Trial> known_;
  // Two schedules that are kept: the last that was made and the last that fitted.
  struct Made {
    Schedule schedule;
    const Trial* of = nullptr;
  };
  Made last_, fitting_;
};

// A layout and its score. The shortfall is the bytes that it takes beyond those under way, which
// are gaps between buffers: bytes under way may cost their own size and no more.
struct Fit {
  Planned planned;
  PlanScore score;
  const MemoryAnalysis& analysis() const { return planned.plan.analysis; }
};
// Lays out a schedule. With a hard limit nothing else can be tried, so fitting it is worth more
// effort.
Fit laid_out(Schedule schedule, double step_s, const MemoryAnalysis& plain, bool is_trial,
             std::optional<int64_t> hard_limit) {
  Fit fit{{std::move(schedule), {}}, {}};
  MemoryPlan& plan = fit.planned.plan;
  PackEffort effort = is_trial ? kFirstLayoutEffort : kFinalEffort;
  if (hard_limit) effort.search_s = 0;
  plan = make_plan(fit.planned.schedule, effort);
  const auto try_harder = [&](const PackEffort& effort) {
    if (MemoryPlan better = make_plan(fit.planned.schedule, effort); gap(better) < gap(plan))
      plan = std::move(better);
  };
  const auto over = [&](int64_t limit) { return plan.analysis.device().total_bytes - limit; };
  const int64_t allowed = plain.device().total_bytes + plan.analysis.in_flight_bytes;
  if (is_trial && !hard_limit && gap(plan) > kGoodGap) try_harder(kFinalEffort);
  if (const int64_t limit = std::min(allowed, hard_limit.value_or(allowed)); over(limit) > 0) {
    effort = kHardEffort;
    effort.sufficient_arena_bytes = plan.arena_bytes[0] - over(limit);
    try_harder(effort);
  }
  Device::Capacities sums;
  sums.fill(Device::unlimited_bytes());
  sums[0] = allowed;
  fit.score = score_of(plan.analysis, sums);
  fit.score.step_s = step_s;
  return fit;
}

Device::Capacities between(const Device::Capacities& a, const Device::Capacities& b) {
  Device::Capacities middle;
  for (size_t kind = 0; kind < middle.size(); ++kind)
    middle[kind] = a[kind] + (b[kind] - a[kind]) / 2;
  return middle;
}

// Returns the best layout within the limits. Lays out at most `max_choices` choices of each
// attempt. Sets `gave_up` if no attempt allowed by `bounds` found a layout within them.
std::optional<Fit> best_fit(const Schedule& schedule, int ahead, const Device::Capacities& limits,
                            const MemoryAnalysis& plain, size_t max_choices,
                            const DeviceDescription& device,
                            const std::function<Schedule()>& per_iteration_schedule, int threads,
                            const OverlapLimits& bounds, const IsWorthIt& is_worth_it,
                            bool& gave_up) {
  Chooser chooser(schedule, count_moves(schedule), ahead, device, bounds);
  std::optional<Fit> best, best_apart;
  const double bound_s = simulate(schedule, device).bound_s;
  // The search with places per iteration, parallel to this one if threads allow; and the step of
  // the choice that it began for.
  std::future<std::optional<Fit>> search_apart;
  double step_here_s = 0;
  // True if that search has ended with a plan that is good enough; the other plans do not count
  // then.
  const auto apart_is_enough = [&](bool wait) {
    if (!search_apart.valid() ||
        (!wait && search_apart.wait_for(std::chrono::seconds(0)) == std::future_status::timeout))
      return false;
    best_apart = search_apart.get();
    return best_apart && best_apart->score.shortfall == 0 &&
           best_apart->score.step_s < kAsWell * step_here_s;
  };
  Device::Capacities asked = limits;
  std::optional<Device::Capacities> fitted, refused;
  std::optional<Choice> laid;  // the last that fitted
  std::vector<Choice> refused_choices;  // the last that did not fit
  int n_refined = 0, attempt = 0;
  for (; attempt < bounds.layouts; ++attempt) {
    if (apart_is_enough(false)) return best_apart;
    std::vector<Choice> choices = chooser.choose(asked);
    // More room may go to moves that do not need it. If little is hidden, less room is tried as
    // well.
    if (attempt == 0 && !hides_well(choices[0].step_s, bound_s)) {
      Device::Capacities less = asked;
      less[0] -= less[0] / kLessRoomPart;
      if (std::vector<Choice> others = chooser.choose(less);
          others[0].step_s < choices[0].step_s)
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
    choices.resize(std::min(choices.size(), max_choices), choices[0]);
    if (attempt == 0 && is_worth_it &&
        std::none_of(choices.begin(), choices.end(),
                     [&](const Choice& c) { return is_worth_it(chooser.schedule(c)); }))
      return std::nullopt;
    // The same choices were laid out with full effort and did not fit: the last reduction was too
    // small to matter.
    if (attempt > 1 &&
        std::equal(choices.begin(), choices.end(), refused_choices.begin(), refused_choices.end(),
                   [](const Choice& a, const Choice& b) { return a.moves_as(b); })) {
      refused = reached;
      if (best && ++n_refined > kMaxRefinements) break;
      asked = reached;
      if (fitted)
        asked = between(*fitted, reached);
      else
        asked[0] -= (reached[0] / kRepeatedParts) << attempt;
      continue;
    }
    for (size_t c = 0; c < choices.size() && !is_good; ++c) {
      Fit fit = laid_out(chooser.schedule(choices[c]), choices[c].step_s, plain, attempt == 0,
                         per_iteration_schedule || c > 0 ? std::nullopt : std::optional(limits[0]));
      bool fits = true;
      Device::Capacities over{};
      for (size_t kind = 0; kind < limits.size(); ++kind) {
        over[kind] = std::max<int64_t>(fit.analysis().kinds[kind].total_bytes - limits[kind], 0);
        fits &= over[kind] == 0;
      }
      over[0] = std::max(over[0], fit.score.shortfall);
      if (!least_over || over[0] < (*least_over)[0]) least_over = over;
      is_good = fits && fit.score.shortfall == 0;
      // Values that are under way between iterations obstruct buffers with one place in all
      // iterations.
      if (attempt == 0 && c == 0 && !is_good && per_iteration_schedule &&
          gap(fit.planned.plan) > kGoodGap) {
        step_here_s = choices[c].step_s;
        search_apart = std::async(threads > 1 ? std::launch::async : std::launch::deferred, [&] {
          bool gave_up_apart = false;
          return best_fit(per_iteration_schedule(), ahead, limits, plain, 1, device, {}, 1, bounds,
                          {}, gave_up_apart);
        });
        if (apart_is_enough(threads <= 1)) return best_apart;
      }
      if (fits && (!best || is_better(fit.score, best->score))) best = std::move(fit);
    }
    Device::Capacities tighter = asked;
    for (size_t kind = 0; kind < limits.size(); ++kind)
      if (const int64_t over = (*least_over)[kind]; over > 0)
        tighter[kind] = reached[kind] - (over << attempt);
    (is_good ? fitted : refused) = is_good ? asked : reached;
    if (is_good)
      laid = choices[0];
    else if (attempt > 0)
      refused_choices = choices;
    if ((is_good && !refused) || (best && ++n_refined > kMaxRefinements)) break;
    asked = fitted && refused ? between(*fitted, *refused) : tighter;
  }
  gave_up = !best && attempt == bounds.layouts;
  if (best && chooser.is_cut() && !hides_well(best->score.step_s, bound_s))
    best->planned.plan.analysis.limits.push_back(
        "overlap: choices of moves that run ahead were tried up to a limit of work; others may hide more");
  if (apart_is_enough(true)) return best_apart;
  return best && !(best_apart && is_better(best_apart->score, best->score)) ? best : best_apart;
}

}  // namespace

Schedule with_few_ahead(const Schedule& schedule, const Device::Capacities& capacities,
                        const DeviceDescription& device) {
  const size_t n_moves = count_moves(schedule);
  if (n_moves == 0) return schedule;
  const OverlapLimits bounds;
  Chooser chooser(schedule, n_moves, kFewAhead, device, bounds);
  return chooser.schedule(chooser.choose(capacities)[0]);
}

Planned overlap(Planned planned, int ahead, const Device::Capacities& capacities,
                const DeviceDescription& device,
                const std::function<Schedule()>& per_iteration_schedule, int threads,
                const OverlapLimits& bounds, const IsWorthIt& is_worth_it) {
  if (ahead <= 0 || count_moves(planned.schedule) == 0) return planned;
  const MemoryAnalysis& plain = planned.plan.analysis;
  Device::Capacities limits = capacities;
  for (size_t kind = 0; kind < limits.size(); ++kind) {
    const int64_t total = plain.kinds[kind].total_bytes;
    if (total > limits[kind]) return planned;
    if (limits[kind] >= Device::unlimited_bytes() && kind == 0) limits[kind] = total;
  }
  bool gave_up = false;
  std::optional<Fit> best =
      best_fit(planned.schedule, ahead, limits, plain, kMaxChoices, device, per_iteration_schedule,
               threads, bounds, is_worth_it, gave_up);
  if (best) return std::move(best->planned);
  if (gave_up)
    planned.plan.analysis.limits.push_back(fmt::format(
        "overlap: none of {} layouts of moves that run ahead fitted, so none does; another may fit",
        bounds.layouts));
  return planned;
}

}  // namespace stow
