// Effects: ops that do something beside giving results, and the tokens that keep them in order.
// Not their recording, which is api/trace.h's.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/core/array_type.h"
#include "stowage/ir/op_list.h"

namespace stow {

/// The type of the token that an effect reads and gives: no elements, so no byte of any plan.
inline ArrayType effect_token_type() {
  return {DType::kBool, Shape{0}};
}

/// True for an op with an effect. Its token makes it needed, and different from every other node.
constexpr bool has_effect(OpKind op) {
  return op == OpKind::kDebugPrint;
}

}  // namespace stow
