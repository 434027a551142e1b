// MemoryPlan: an offset for every buffer of a schedule, from live ranges on one timeline.
// Not the schedule's order; plans of several schedules are compared by their peaks.
#pragma once

#include <string>
#include <vector>

#include "stowage/ir/schedule.h"
#include "stowage/pack/problem.h"
#include "stowage/plan/analysis.h"

namespace stow {

/// The live ranges of a schedule's buffers. An instant is one run of one kernel; loops are walked
/// iteration by iteration, so that each slot of a stack lives and dies by itself.
struct Lifetimes {
  pack::Problem problem;           ///< One entry a buffer; none where it is no temporary or output.
  std::vector<const Kernel*> at;   ///< The kernel of each instant.
};
Lifetimes compute_lifetimes(const Schedule& schedule);

struct MemoryPlan {
  std::vector<int64_t> offsets;  ///< One a buffer; of arguments 0.
  int64_t arena_bytes = 0;
  MemoryAnalysis analysis;
};

/// Lays the buffers out and says who owns the peak. `work` is what the packer may spend beyond its
/// first pass. The result is validated apart from the packer.
MemoryPlan make_plan(const Schedule& schedule, int64_t work);

/// Every buffer at bytes of its own: the layout of a run that shares nothing, for comparison.
MemoryPlan make_plan_apart(const Schedule& schedule);

/// The timeline as CSV: instant, kernel, source, live bytes.
std::string timeline_csv(const Schedule& schedule, const MemoryPlan& plan);

}  // namespace stow
