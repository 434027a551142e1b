// The kernels of row_kernels_plain.cpp by op and dtype.
// Not those of f32; row_kernels.h names these.
#pragma once

#include "stowage/runtime/cpu/kernels/row_kernels.h"

namespace stow::cpu {

/// Arithmetic of f64, the integers and bool, comparisons and choices of any dtype of a register; null
/// for an op that is no loop of vectors.
MapKernel plain_map_kernel(OpKind op, DType dtype);
/// Conversions of one register's dtype to another, but for copies.
MapKernel plain_convert_kernel(DType in, DType out);

}  // namespace stow::cpu
