// Folds one dense row into another, element by element, as scatters do with rows of their operand.
// Not the choice of the rows; scatter.cpp makes it.
#pragma once

#include <cstdint>

#include "stowage/base/inside.h"
#include "stowage/core/dtype.h"
#include "stowage/ir/op_list.h"

namespace stow::cpu {

/// to[i] = op(to[i], from[i]) for i < n. The rows do not overlap.
using FoldRowKernel = void (*)(void* to, const void* from, int64_t n);

/// Returns the kernel of kScatterAdd, kScatterMul, kScatterMax or kScatterMin over rows of `dtype`.
/// Each result in bf16 or f16 is rounded. Extremes are NaN where either element is; +0 is above -0.
FoldRowKernel fold_row_kernel(OpKind op, DType dtype);

}  // namespace stow::cpu
