// What a policy that moves values by their op needs to find, written among its names.
// Not what it decides; that is the policy's function.
#pragma once

#include <string_view>

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// Stands in Policy::wanted_names for any product without batch axes.
inline constexpr std::string_view kWantsPlainProduct = "<a product without batch axes>";

/// Whether a node is such a product.
inline bool is_plain_product(const Node& node) {
  if (node.op != OpKind::kDotGeneral) return false;
  const auto& dims = node.as<DotParams>();
  return dims.lhs_batch.empty() && dims.rhs_batch.empty();
}

}  // namespace stow
