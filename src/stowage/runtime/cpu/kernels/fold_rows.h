// One dense row folded into another, element by element: what scatters do to the rows of a destination.
// Not which rows; scatter.cpp knows these.
#pragma once

#include <cstdint>

#include "stowage/base/inside.h"
#include "stowage/core/dtype.h"
#include "stowage/ir/op_list.h"

namespace stow::cpu {

/// to[i] = op(to[i], from[i]) for i < n. The rows do not overlap.
using FoldRowKernel = void (*)(void* to, const void* from, int64_t n);

/// The kernel of kScatterAdd, kScatterMul, kScatterMax or kScatterMin over rows of `dtype`. Halves are
/// rounded at every element. Extremes are NaN where either element is, and +0 is above -0.
FoldRowKernel fold_row_kernel(OpKind op, DType dtype);

}  // namespace stow::cpu
