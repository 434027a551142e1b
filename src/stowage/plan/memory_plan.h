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
  std::vector<int64_t> starts;  ///< Instants at which iterations begin, and that of the end.
  int64_t period = 1;           ///< After so many iterations the same slots of its rings are in use.
  int parent = -1;              ///< The run around it.
};

/// The live ranges of a schedule's buffers. An instant is one run of one kernel; loops are walked
/// iteration by iteration, so that each slot of a stack lives and dies by itself.
struct Lifetimes {
  /// One entry a buffer, or one a slot or iteration where those of a buffer lie apart; without
  /// rectangles where nothing is placed.
  pack::Problem problem;
  std::vector<BufferId> owner;    ///< The buffer of each entry.
  std::vector<size_t> first;      ///< The first entry of each buffer.
  std::vector<const Kernel*> at;  ///< The kernel of each instant.
  std::vector<LoopRun> runs;      ///< Runs of loops that are walked whole.
  std::vector<int> run_at;        ///< The innermost of these around each instant, or -1.
  /// True if every run has these instants: no branch, no open loop, and no loop walked in part.
  bool of_every_run = true;
  std::vector<std::string> limits;  ///< As MemoryAnalysis', of the timeline.

  int64_t slot(size_t entry) const {
    return static_cast<int64_t>(entry - first[owner[entry].index()]);
  }
};
Lifetimes compute_lifetimes(const Schedule& schedule);

/// Bytes of one kind that live at each instant, of what the plan places; ends with what is left.
std::vector<int64_t> live_bytes(const Schedule& schedule, const Lifetimes& lifetimes,
                                MemoryKind kind);

struct MemoryPlan {
  /// By buffer, its offset into the arena of its kind; one offset a slot or iteration if those lie
  /// apart; 0 for arguments.
  std::vector<std::vector<int64_t>> offsets;
  std::array<int64_t, kNumMemoryKinds> arena_bytes{};
  MemoryAnalysis analysis;
};

/// Bytes that no layout of a schedule gets below, by memory kind; and the length of its timeline.
struct PeakBound {
  std::array<int64_t, kNumMemoryKinds> bytes{};
  int64_t n_instants = 0;
};
PeakBound peak_bound(const Schedule& schedule);

/// Bytes of each kind that are there all along beside the arena: arguments, and results with memory
/// of their own.
std::array<int64_t, kNumMemoryKinds> bytes_beside_arena(const Schedule& schedule);

/// The bytes of a layout on the device beyond its lower bound, as a share of it all; 0 where that is
/// at most a kilobyte.
double gap(const MemoryPlan& plan);

/// A layout this near to the largest live sum is not worth another.
inline constexpr double kGoodGap = 0.002;

/// The work that the packer may do; counted, so that a plan is the same everywhere.
struct PackEffort {
  int64_t work = 0;     ///< Work of greedy packing beyond its first pass (pack/heuristics.h).
  double search_s = 0;  ///< Seconds of exact search, about, if greedy packing left more than a gap.
  int64_t enough = 0;   ///< Bytes of the device's arena; none smaller is searched for.
  size_t most_searched = 10'000;  ///< Buffers; of more there is greedy packing alone, which is reported.
};
/// For a plan that will be run.
inline constexpr PackEffort kFinalEffort = {6'000'000, 0.2};

/// Lays the buffers out and says who owns the peak. The result is validated apart from the packer.
MemoryPlan make_plan(const Schedule& schedule, const PackEffort& effort);

/// Every buffer at bytes of its own: the layout of a run that shares nothing, for comparison.
MemoryPlan make_plan_apart(const Schedule& schedule);

/// The timeline as CSV: instant, kernel, source, live bytes.
std::string timeline_csv(const Schedule& schedule, const MemoryPlan& plan);

}  // namespace stow
