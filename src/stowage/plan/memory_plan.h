// MemoryPlan: an offset for every buffer of a schedule, from live ranges on one timeline.
// Not the schedule's order; plans of several schedules are compared by their peaks.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/schedule.h"
#include "stowage/pack/problem.h"
#include "stowage/plan/analysis.h"

namespace stow {

/// One run of a loop on the timeline.
struct LoopRun {
  std::vector<int64_t> starts;  ///< First instant of each iteration, and of what follows the loop.
  int64_t period = 1;           ///< Iterations after which rings use the same slots again.
  int parent = -1;              ///< Index of the enclosing run, or -1.
};

/// The live ranges of a schedule's buffers. An instant is one run of one kernel. Loops are walked
/// iteration by iteration, so each slot of a stack has a live range of its own.
struct Lifetimes {
  /// One entry for each place of each buffer (Buffer::n_places()). An entry has no rectangles if
  /// the plan places nothing for it.
  pack::Problem problem;
  std::vector<BufferId> owner;    ///< The buffer of each entry.
  std::vector<size_t> first;      ///< The first entry of each buffer.
  std::vector<const Kernel*> at;  ///< The kernel of each instant.
  std::vector<LoopRun> runs;      ///< Runs of loops that are walked completely.
  std::vector<int> run_at;        ///< Index in `runs` of the innermost run at each instant, or -1.
  /// True if every run of the program has exactly these instants: no branch, no open loop, and no
  /// loop that is walked in part.
  bool same_in_every_run = true;
  std::vector<std::string> limits;  ///< Sentences for MemoryAnalysis::limits.

  /// The number of an entry's place in its buffer.
  int64_t slot(size_t entry) const {
    return static_cast<int64_t>(entry - first[owner[entry].index()]);
  }
};
Lifetimes compute_lifetimes(const Schedule& schedule);

/// Live bytes of the placed buffers of one memory kind, at each instant and after the last one.
std::vector<int64_t> live_bytes(const Schedule& schedule, const Lifetimes& lifetimes,
                                MemoryKind kind);

struct MemoryPlan {
  /// By buffer, then by place (Buffer::place()): the offset in the arena of its memory kind; 0 for
  /// arguments.
  std::vector<std::vector<int64_t>> offsets;
  std::array<int64_t, kNumMemoryKinds> arena_bytes{};
  MemoryAnalysis analysis;
};

/// A lower bound of the bytes of any layout of a schedule, by memory kind; and the length of its
/// timeline.
struct PeakBound {
  std::array<int64_t, kNumMemoryKinds> bytes{};
  int64_t n_instants = 0;
};
PeakBound peak_bound(const Schedule& schedule);

/// Bytes of each memory kind outside the arena, live for the whole run: arguments, and outputs with
/// memory of their own (Buffer::outside_arena).
std::array<int64_t, kNumMemoryKinds> bytes_outside_arena(const Schedule& schedule);

/// Device bytes of a plan beyond its lower bound, as a share of its total; 0 if they are at most 1
/// KiB.
double gap(const MemoryPlan& plan);

/// The largest gap() at which no better layout is searched for.
inline constexpr double kGoodGap = 0.002;

/// The work that the packer may do. It is counted, not timed, so a plan is the same on every
/// machine.
struct PackEffort {
  int64_t work = 0;     ///< Work of greedy packing beyond its first pass (pack/heuristics.h).
  double search_s = 0;  ///< Approximate seconds of exact search, if greedy packing leaves a gap.
  int64_t sufficient_arena_bytes = 0;  ///< Size of the device's arena at which the search stops.
  /// The most buffers for exact search; a problem with more adds a limit to the plan.
  size_t max_searched_buffers = 10'000;
};
/// The effort for a plan that will be run.
inline constexpr PackEffort kFinalEffort = {6'000'000, 0.2};

/// Lays out the buffers and fills in the analysis. pack/validate checks the layout, in all builds.
MemoryPlan make_plan(const Schedule& schedule, const PackEffort& effort);

/// Lays out the buffers so that none share memory (LowerOptions::reuse off); for comparison.
MemoryPlan make_plan_without_reuse(const Schedule& schedule);

/// Returns the timeline as CSV (instant, kernel, source, pass, live device bytes), then the placed
/// rectangles with their offsets.
std::string timeline_csv(const Schedule& schedule, const MemoryPlan& plan);

}  // namespace stow
