// The orders in which greedy placement takes buffers.
// Not placement itself (heuristics.h): an order sees sizes and lifetimes only.
#pragma once

#include <cstdint>
#include <vector>

#include "stowage/pack/sections.h"

namespace stow::pack {

/// The measure by which buffers are sorted; largest first, except for kPeakDistance and kProgram.
enum class Order {
  kPeakDistance,  // Buffers live in the fullest section first, then by distance from it.
  kPressure,      // By the largest live sum among the buffer's sections.
  kPressureArea,  // By pressure; ties by area.
  kLifetime,
  kArea,
  kSize,
  kProgram,  // By the first section.
};
/// All orders, the most promising one first.
inline constexpr Order kAllOrders[] = {Order::kSize,         Order::kArea,     Order::kPressure,
                                       Order::kPressureArea, Order::kLifetime, Order::kProgram,
                                       Order::kPeakDistance};

/// Measures of buffers that orders are computed from, in sections and bytes.
struct Measures {
  std::vector<double> lifetime;  // [buffers] sum over its rectangles of the sections it is live in.
  std::vector<double> size;      // [buffers] highest end of a rectangle.
  std::vector<double> pressure;  // [buffers] largest live sum among its sections.
};
Measures measure(const Sections& sections);

/// Returns buffer indices in the order of placement, without buffers that have no live bytes. Ties
/// go to the larger, then longer, then earlier buffer, so the order depends on the problem only.
std::vector<int32_t> make_order(const Sections& sections, const Measures& measures, Order order);

}  // namespace stow::pack
