// The kernel of sums over rows that lie in several runs of memory. row_kernels.h has its call.
// Not the decision to use it; row_fuse.cpp makes it.
#pragma once

#include "stowage/runtime/cpu/kernels/row_kernels.h"

namespace stow::cpu {

/// As ReduceKernels::rows of a sum of f32 in memory; calls may begin and end at any column.
ReduceRowsKernel f32_sum_runs_kernel();

}  // namespace stow::cpu
