// ReduceOrder: the order in which a sum over ranks is made.
// Not the reductions; those are the communicator's and the transport's.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace stow::comm {

/// kTree: the balanced pairwise tree over the group's index, with the same bits on every transport.
/// kNative: the transport's own reduction, if it has one. The bits of float sums then depend on the
/// transport and on the distribution of ranks over processes; all other results have the same bits.
enum class ReduceOrder : uint8_t { kTree, kNative };

/// Returns "tree" or "native".
constexpr std::string_view reduce_order_name(ReduceOrder order) {
  return order == ReduceOrder::kTree ? "tree" : "native";
}
/// Returns the order with this name; nullopt if there is none.
constexpr std::optional<ReduceOrder> reduce_order_of(std::string_view name) {
  if (name == "tree") return ReduceOrder::kTree;
  if (name == "native") return ReduceOrder::kNative;
  return std::nullopt;
}

}  // namespace stow::comm
