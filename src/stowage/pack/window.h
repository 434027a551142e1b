// Packing the surroundings of the peak exactly, to lead a greedy pass over the whole problem.
// Not a packing of the whole: it answers with an order.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "stowage/pack/problem.h"

namespace stow::pack {

/// The longest stretch of time around the fullest instant in which no buffer comes twice (a loop's
/// iteration, and what is before and after it) is packed exactly to within `slack` of the largest
/// live sum, buffers of several rectangles there standing as their hull. Returns all buffers that
/// have bytes: those of the window from the bottom up, then the others by size. Empty where the
/// search failed within `fail_limit`. Deterministic.
std::vector<int32_t> window_order(const Problem& problem, double slack, int64_t fail_limit,
                                  const std::function<bool()>& stop);

}  // namespace stow::pack
