// The vector functions of simd_math-inl.h and its continuations over arrays, for tests and for the
// reference.
// Not for kernels, which include simd_math-inl.h.
#pragma once

#include <cstdint>

#include "stowage/base/inside.h"
#include "stowage/ir/op_list.h"

namespace stow::cpu {

/// True if apply_math_f32() supports `op`: exp to erf_inv, and ops of two operands.
bool is_math_op(OpKind op);
/// True for pow, atan2 and rem.
bool is_binary_math_op(OpKind op);

/// out[i] = op(a[i]), or op(a[i], b[i]) for ops of two operands; b is not read otherwise. `out` may
/// be `a` or `b`. The bits of an element do not depend on its index.
void apply_math_f32(OpKind op, const float* a, const float* b, float* out, int64_t n);

}  // namespace stow::cpu
