// Measured rates of the CPU, against which a profile compares its kernels.
// Not a cost model.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/core/dtype.h"

namespace stow::cpu {

/// Measures the FLOP/s of products of square matrices of `dtype` that fit an inner cache, with
/// `threads` threads. Returns the best of a few runs, after about 0.1 s.
double measured_product_rate(DType dtype, int threads);
/// Measures the bytes/s of a[i] = b[i] + s c[i] over arrays larger than any cache; the bytes of all
/// three arrays count.
/// Source: McCalpin's STREAM.
double measured_triad_rate(int threads);

}  // namespace stow::cpu
