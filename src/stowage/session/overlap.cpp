#include "stowage/session/overlap.h"

#include <algorithm>

#include "stowage/passes/transfers.h"

namespace stow {
namespace {

// Layouts tried; each asks for less by twice what the one before was over.
constexpr int kMaxAttempts = 5;
// Trials cost a walk of the timeline each.
constexpr int kMaxTrials = 200;
constexpr int64_t kMaxTrialInstants = 2'000'000;
constexpr PackEffort kTrialEffort = {.work = kFinalEffort.work / 8, .search_s = 0.1};

class Chooser {
 public:
  Chooser(const Planned& planned, size_t n_moves, const Device::Capacities& limits)
      : planned_(planned), limits_(limits), ahead_(n_moves, 0) {}

  // Raises as many moves as can be from so many ahead to so many.
  void raise(int from, int to) {
    std::vector<size_t> moves;
    for (size_t m = 0; m < ahead_.size(); ++m)
      if (ahead_[m] == from) moves.push_back(m);
    try_all(moves, to);
  }
  // Starts again, with so much less than what the last choice came to.
  void tighten(MemoryKind kind, int64_t bytes) {
    int64_t& limit = limits_[static_cast<size_t>(kind)];
    limit = std::min(limit, reached_[static_cast<size_t>(kind)]) - bytes;
  }
  void clear() {
    std::fill(ahead_.begin(), ahead_.end(), 0);
    spent_ = 0;
  }
  bool any() const {
    return std::any_of(ahead_.begin(), ahead_.end(), [](int a) { return a > 0; });
  }
  Schedule schedule() const { return overlap_transfers(planned_.schedule, ahead_); }

 private:
  // All of them; or, where that is too much, what goes of either half.
  void try_all(const std::vector<size_t>& moves, int ahead) {
    if (moves.empty() || n_trials_ >= kMaxTrials || spent_ >= kMaxTrialInstants) return;
    const std::vector<int> before = ahead_;
    for (size_t m : moves) ahead_[m] = ahead;
    if (fits()) return;
    ahead_ = before;
    if (moves.size() == 1) return;
    const auto middle = moves.begin() + static_cast<std::ptrdiff_t>(moves.size() / 2);
    try_all({moves.begin(), middle}, ahead);
    try_all({middle, moves.end()}, ahead);
  }

  // By the largest live sums, which a layout nearly reaches.
  bool fits() {
    ++n_trials_;
    const PeakBound bound = peak_bound(schedule());
    spent_ += bound.n_instants;
    for (size_t kind = 0; kind < limits_.size(); ++kind)
      if (bound.bytes[kind] > limits_[kind]) return false;
    reached_ = bound.bytes;
    return true;
  }

  const Planned& planned_;
  Device::Capacities limits_;
  Device::Capacities reached_{};  // the largest live sums of the choice so far
  std::vector<int> ahead_;
  int n_trials_ = 0;
  int64_t spent_ = 0;
};

}  // namespace

Planned overlap(Planned planned, int ahead, const Device::Capacities& capacities) {
  const size_t n_moves = count_moves(planned.schedule);
  if (ahead == 0 || n_moves == 0) return planned;
  Device::Capacities limits = capacities;
  for (size_t kind = 0; kind < limits.size(); ++kind) {
    const int64_t total = planned.plan.analysis.kinds[kind].total_bytes;
    if (total > limits[kind]) return planned;
    if (limits[kind] >= Device::unlimited_bytes() && kind == 0) limits[kind] = total;
  }
  Chooser chooser(planned, n_moves, limits);
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    for (int from = 0, to = 1; from < ahead; from = to, to = std::min(ahead, to + (to + 1) / 2))
      chooser.raise(from, to);
    if (!chooser.any()) break;
    Schedule schedule = chooser.schedule();
    MemoryPlan plan = make_plan(schedule, kTrialEffort);
    bool fits = true;
    for (size_t kind = 0; kind < limits.size(); ++kind) {
      const int64_t over = plan.analysis.kinds[kind].total_bytes - limits[kind];
      if (over <= 0) continue;
      fits = false;
      chooser.tighten(static_cast<MemoryKind>(kind), over << attempt);
    }
    if (fits) return {std::move(schedule), std::move(plan)};
    chooser.clear();
  }
  return planned;
}

}  // namespace stow
