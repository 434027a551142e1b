// A timeline without the instants that ask nothing more of a layout than others do.
// Not an approximation: the packing problem has the same solutions, and the same largest live sum.
#pragma once

#include "stowage/plan/memory_plan.h"

namespace stow {

/// Returns for each instant, and for the end, how many instants before it are kept. An iteration of
/// a loop is left out if everything that lives in it, instant by instant, also lives in the
/// iteration one period (of the loop's rings) later, or earlier: of a loop that fills a stack the
/// last iterations are left, of one that empties a stack the first. Linear in the live ranges,
/// apart from a logarithm.
std::vector<int64_t> kept_before(const Lifetimes& lifetimes);

/// The rectangles at the instants that are kept, renumbered.
pack::Problem condense(const pack::Problem& problem, const std::vector<int64_t>& kept_before);

}  // namespace stow
