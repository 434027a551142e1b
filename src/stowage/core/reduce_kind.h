// ReduceKind: the binary function of a reduction over elements, or of a collective over parts.
// Not its order: a collective sum is a balanced pairwise tree over the index in the group.
#pragma once

#include <cstdint>
#include <string_view>

namespace stow {

/// kAnd and kOr are bitwise for integers and logical for bool.
enum class ReduceKind : uint8_t { kSum, kMax, kMin, kAnd, kOr };

/// "sum", "max", "min", "and" or "or".
constexpr std::string_view reduce_kind_name(ReduceKind kind) {
  constexpr std::string_view kNames[] = {"sum", "max", "min", "and", "or"};
  return kNames[static_cast<int>(kind)];
}

}  // namespace stow
