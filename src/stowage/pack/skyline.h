// The order in which a skyline heuristic places buffers: always one with the lowest base.
// Not a placement: first fit in this order (placer.h) is at no point above the skyline.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "stowage/pack/sections.h"

namespace stow::pack {

/// Returns buffer indices in the order of placement, without buffers that have no live bytes. The
/// base of a buffer is the lowest offset at which its rectangles are above the skyline. Among the
/// buffers with the lowest base, the one with the largest `rank` is next. Alignment is ignored.
/// Adds its steps to *work. Returns an empty list if the steps exceed `limit`, or if `stop`, called
/// from time to time, returns true.
std::vector<int32_t> skyline_order(const Sections& sections, const std::vector<double>& rank,
                                   int64_t limit, const std::function<bool()>& stop, int64_t* work);

}  // namespace stow::pack
