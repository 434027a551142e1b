// Drops instants that constrain a layout no more than others do, so that long timelines pack fast.
// Not an approximation: the packing problem has the same solutions, and the same largest live sum.
#pragma once

#include "stowage/plan/memory_plan.h"

namespace stow {

/// Returns for each instant, and for the end, how many instants before it are kept. An iteration of
/// a loop is dropped if everything that lives in it, instant by instant, also lives in the
/// iteration one period (LoopRun::period) later, or in the one a period earlier. A loop that fills
/// a stack keeps its last iterations, a loop that empties one its first. Takes O(n log n) in the
/// live ranges.
std::vector<int64_t> kept_before(const Lifetimes& lifetimes);

/// Returns the problem restricted to the kept instants, which are renumbered.
pack::Problem condense(const pack::Problem& problem, const std::vector<int64_t>& kept_before);

}  // namespace stow
