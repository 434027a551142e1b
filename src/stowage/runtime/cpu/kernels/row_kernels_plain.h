// The kernels of row_kernels_plain.cpp, by op and dtype.
// Not the kernels of f32, which row_kernels.h declares.
#pragma once

#include "stowage/runtime/cpu/kernels/row_kernels.h"

namespace stow::cpu {

/// Arithmetic of f64, integers and bool, and comparisons and selects of any register dtype; null if
/// the op has no vector loop.
MapKernel plain_map_kernel(OpKind op, DType dtype);
/// Conversions between different register dtypes.
MapKernel plain_convert_kernel(DType in, DType out);

}  // namespace stow::cpu
