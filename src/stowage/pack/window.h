// Packs the time around the peak exactly, to find an order for a greedy pass over the problem.
// Not a packing of the whole problem: it returns an order.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "stowage/pack/problem.h"

namespace stow::pack {

/// Packs the buffers in a window of time around the fullest instant with ExactSearch, below
/// (1 + slack) times the largest live sum. A buffer is replaced by the hull of its rectangles in
/// the window. The window is as long as the live sum of the hulls allows, which in a loop is about
/// one iteration. Returns all buffers that have live bytes: those of the window by increasing
/// offset, then the remaining ones by decreasing size. Empty if no strategy finds a packing within
/// `fail_limit` failures. Deterministic, unless `stop` ends the search.
std::vector<int32_t> window_order(const Problem& problem, double slack, int64_t fail_limit,
                                  const std::function<bool()>& stop);

}  // namespace stow::pack
