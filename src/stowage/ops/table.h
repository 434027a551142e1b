// Declares the definitions of all ops by name, generated from ir/op_list.h.
// Not the lookup; op_def() of op_def.h does that.
#pragma once

#include "stowage/ops/op_def.h"

namespace stow::ops {

#define STOW_X(kind, name, cls) extern const OpDef k##kind;
STOW_FOR_EACH_OP(STOW_X)
#undef STOW_X

}  // namespace stow::ops
