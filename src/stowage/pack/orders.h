// The orders in which greedy placement takes buffers.
// Not placement itself (heuristics.h): an order sees sizes and lifetimes only.
#pragma once

#include <cstdint>
#include <vector>

#include "stowage/pack/sections.h"

namespace stow::pack {

enum class Order {
  kPeakDistance,  // First what is live in the fullest section, then by distance from it.
  kPressure,      // By the fullest section that the buffer is live in.
  kPressureArea,
  kLifetime,
  kArea,
  kSize,
  kProgram,  // By the first section.
};
/// The most promising first.
inline constexpr Order kAllOrders[] = {Order::kSize,         Order::kArea,     Order::kPressure,
                                       Order::kPressureArea, Order::kLifetime, Order::kProgram,
                                       Order::kPeakDistance};

/// Measures of a buffer that an order may weigh; sums over its rectangles, in sections and bytes.
struct Measures {
  std::vector<double> life;      // [buffers] sections lived in.
  std::vector<double> size;      // [buffers] the highest end of a rectangle.
  std::vector<double> pressure;  // [buffers] the largest live sum that it lives through.
};
Measures measure(const Sections& sections);

/// Buffer indices, first to place first. Buffers with nothing to place are left out. Ties go to the
/// larger, then longer, then earlier buffer, so the order is a function of the problem alone.
std::vector<int32_t> make_order(const Sections& sections, const Measures& measures, Order order);

}  // namespace stow::pack
