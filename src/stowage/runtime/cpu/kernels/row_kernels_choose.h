// Kernels of row programs that compare and select in one pass over a tile. row_kernels.h has their
// calls.
// Not the choice of which steps are fused; row_fuse.cpp makes it.
#pragma once

#include "stowage/runtime/cpu/kernels/row_kernels.h"

namespace stow::cpu {

/// `arg 0 test arg 1 ? arg 2 : arg 3`. All args are f32, or the first two are i32 and the others
/// have 32 bits in a register's form. For the tests kLt, kLe and kEq; null for others.
MapKernel f32_choose_kernel(OpKind test);
MapKernel i32_choose_kernel(OpKind test);
/// `arg 0 < arg 1 ? arg 3 + arg 2 : arg 3`, of i32, as for indices that count from the end.
MapKernel i32_wrap_kernel();
/// min(max(arg 0, arg 1), arg 2) for kMin, max(min(arg 0, arg 1), arg 2) for kMax, of f32; null for
/// others.
MapKernel f32_clamp_kernel(OpKind outer);
/// 1 in the column whose index is arg 0 (one i32 for each row), 0 in other columns; f32.
MapKernel f32_one_hot_kernel();

}  // namespace stow::cpu
