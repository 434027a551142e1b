// The sum over rows that lie in memory run by run. See row_kernels.h for its call.
// Not the choice of it; that is row_fuse.cpp's.
#pragma once

#include "stowage/runtime/cpu/kernels/row_kernels.h"

namespace stow::cpu {

/// As ReduceKernels::rows of a sum of f32 in memory, where calls may begin and end at any column.
ReduceRowsKernel f32_sum_runs_kernel();

}  // namespace stow::cpu
