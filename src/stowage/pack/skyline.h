// The order in which a rising skyline takes buffers: always one whose base is lowest.
// Not a placement: first fit in this order (placer.h) lies nowhere above the skyline.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "stowage/pack/sections.h"

namespace stow::pack {

/// Buffer indices, first to place first; buffers with nothing to place are left out. The base of a
/// buffer is the highest top under its rectangles; of those at the lowest base the one of the
/// largest `rank` is next. Alignment is not looked at. Adds its steps to *work; gives up and
/// returns nothing when these exceed `limit`, or when `stop` (asked now and then, if there is one)
/// is true.
std::vector<int32_t> skyline_order(const Sections& sections, const std::vector<double>& rank,
                                   int64_t limit, const std::function<bool()>& stop, int64_t* work);

}  // namespace stow::pack
