// Kernels of row programs that compare and choose in one pass over a tile. See row_kernels.h for their calls.
// Not the choice of what is computed together; that is row_fuse.cpp's.
#pragma once

#include "stowage/runtime/cpu/kernels/row_kernels.h"

namespace stow::cpu {

/// Arg 2 where arg 0 `test` arg 1, else arg 3: all f32, or the first two i32 and the others of 32 bits in a
/// register's form. For kLt, kLe and kEq; null for others.
MapKernel f32_choose_kernel(OpKind test);
MapKernel i32_choose_kernel(OpKind test);
/// Arg 3 + arg 2 where arg 0 < arg 1, else arg 3, of i32: as of indices that count from the end.
MapKernel i32_wrap_kernel();
/// min(max(arg 0, arg 1), arg 2) for kMin, max(min(arg 0, arg 1), arg 2) for kMax, of f32; null for others.
MapKernel f32_clamp_kernel(OpKind outer);
/// 1 in the column that arg 0 (one i32 a row) names, 0 in the others.
MapKernel f32_one_hot_kernel();

}  // namespace stow::cpu
