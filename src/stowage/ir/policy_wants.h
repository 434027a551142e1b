// An entry of Policy::wanted_names that asks for values by their op instead of a name.
// Not the decision; Policy::decide makes it.
#pragma once

#include <string_view>

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// In Policy::wanted_names, stands for any product without batch axes.
inline constexpr std::string_view kWantsPlainProduct = "<a product without batch axes>";

/// True if the node is a product without batch axes.
inline bool is_plain_product(const Node& node) {
  if (node.op != OpKind::kDotGeneral) return false;
  const auto& dims = node.as<DotParams>();
  return dims.lhs_batch.empty() && dims.rhs_batch.empty();
}

}  // namespace stow
