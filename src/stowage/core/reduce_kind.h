// ReduceKind: how the elements of a reduction, or the parts of a collective one, are put together.
// Not the order: that of a collective sum is the balanced pairwise tree over the group's index.
#pragma once

#include <cstdint>
#include <string_view>

namespace stow {

enum class ReduceKind : uint8_t { kSum, kMax, kMin, kAnd, kOr };

/// "sum", "max", "min", "and" or "or".
constexpr std::string_view reduce_kind_name(ReduceKind kind) {
  constexpr std::string_view kNames[] = {"sum", "max", "min", "and", "or"};
  return kNames[static_cast<int>(kind)];
}

}  // namespace stow
