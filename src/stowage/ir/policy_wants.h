// Entries among a policy's names that ask for values by their op.
// Not what it decides; that is the policy's function.
#pragma once

#include <string_view>

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// Stands in Policy::wanted_names for any product without batch axes.
inline constexpr std::string_view kWantsPlainProduct = "<a product without batch axes>";

/// True if the node is such a product.
inline bool is_plain_product(const Node& node) {
  if (node.op != OpKind::kDotGeneral) return false;
  const auto& dims = node.as<DotParams>();
  return dims.lhs_batch.empty() && dims.rhs_batch.empty();
}

}  // namespace stow
