// Rates that the CPU reaches now, measured: what a profile is held against.
// Not a cost model.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/core/dtype.h"

namespace stow::cpu {

/// FLOP/s of the best of a few products of square matrices that fit a near cache, operands of
/// `dtype`, with so many threads. Takes some 0.1 s.
double measured_product_rate(DType dtype, int threads);
/// Bytes/s of a[i] = b[i] + s c[i] over arrays too large for any cache, three arrays counted.
/// Source: McCalpin's STREAM.
double measured_triad_rate(int threads);

}  // namespace stow::cpu
