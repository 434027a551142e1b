// Effects: ops that do more than compute results, and the tokens that keep them in order.
// Not the recording of effects; api/trace.h has that.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/core/array_type.h"
#include "stowage/ir/op_list.h"

namespace stow {

/// The type of the token that an effect takes and returns. It has no elements, so it takes no
/// memory.
inline ArrayType effect_token_type() {
  return {DType::kBool, Shape{0}};
}

/// True for an op with an effect. Its token keeps it from being dropped as dead or merged with
/// another node.
constexpr bool has_effect(OpKind op) {
  return op == OpKind::kDebugPrint;
}

}  // namespace stow
