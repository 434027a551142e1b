// Elementwise functions and operators over arrays, by the names of jax.numpy and jax.lax.
// Not reductions or products; see reduce.h and linalg.h.
#pragma once

#include "stowage/api/array.h"

namespace stow {

// Binary functions promote dtypes as JAX does (C++ scalars are weak: x * 2.0 keeps bf16) and
// broadcast shapes as NumPy does. Errors: TraceError where shapes do not broadcast or the op does
// not take the dtype; it names the op, the types and the place in the caller's source.

Array operator+(const Operand& a, const Operand& b);
Array operator-(const Operand& a, const Operand& b);
Array operator*(const Operand& a, const Operand& b);
/// True division: integers give a float, as in NumPy.
Array operator/(const Operand& a, const Operand& b);
/// NumPy's remainder: it takes the sign of the divisor.
Array operator%(const Operand& a, const Operand& b);
Array operator-(const Operand& a);
Array operator&(const Operand& a, const Operand& b);
Array operator|(const Operand& a, const Operand& b);
Array operator^(const Operand& a, const Operand& b);
Array operator~(const Operand& a);
Array operator<<(const Operand& a, const Operand& b);
/// Arithmetic for signed types, logical for unsigned ones.
Array operator>>(const Operand& a, const Operand& b);

// Comparisons give bool arrays, element by element.
Array operator==(const Operand& a, const Operand& b);
Array operator!=(const Operand& a, const Operand& b);
Array operator<(const Operand& a, const Operand& b);
Array operator<=(const Operand& a, const Operand& b);
Array operator>(const Operand& a, const Operand& b);
Array operator>=(const Operand& a, const Operand& b);

Array& operator+=(Array& a, const Operand& b);
Array& operator-=(Array& a, const Operand& b);
Array& operator*=(Array& a, const Operand& b);
Array& operator/=(Array& a, const Operand& b);

Array add(const Operand& a, const Operand& b);
Array subtract(const Operand& a, const Operand& b);
Array multiply(const Operand& a, const Operand& b);
Array divide(const Operand& a, const Operand& b);
/// Rounds down, for integers and floats.
Array floor_divide(const Operand& a, const Operand& b);
/// As operator%.
Array remainder(const Operand& a, const Operand& b);
/// C's remainder: it takes the sign of the dividend.
Array fmod(const Operand& a, const Operand& b);
/// With an integer C++ scalar, repeated multiplication, also for integers.
Array pow(const Operand& a, const Operand& b);
/// Propagates NaN.
Array maximum(const Operand& a, const Operand& b);
Array minimum(const Operand& a, const Operand& b);
/// log(exp(a) + exp(b)) without overflow.
Array logaddexp(const Operand& a, const Operand& b);
/// minimum(maximum(x, low), high).
Array clip(const Operand& x, const Operand& low, const Operand& high);
/// Elements of `a` where `condition` is not zero, else of `b`; all three broadcast.
Array where(const Operand& condition, const Operand& a, const Operand& b);

Array negative(const Operand& x);
Array abs(const Operand& x);
Array sign(const Operand& x);
Array square(const Operand& x);
// Of integers these are the integers themselves.
Array floor(const Operand& x);
Array ceil(const Operand& x);
/// Halves to even.
Array round(const Operand& x);

// Functions to floats; integers are converted to f32 first.
Array exp(const Operand& x);
Array expm1(const Operand& x);
Array log(const Operand& x);
Array log1p(const Operand& x);
Array sqrt(const Operand& x);
Array rsqrt(const Operand& x);
Array tanh(const Operand& x);
Array sin(const Operand& x);
Array cos(const Operand& x);
Array erf(const Operand& x);
/// The inverse of erf.
Array erf_inv(const Operand& x);
/// 1 / (1 + exp(-x)).
Array logistic(const Operand& x);
Array sigmoid(const Operand& x);
Array reciprocal(const Operand& x);
Array isfinite(const Operand& x);
Array isnan(const Operand& x);

Array logical_not(const Operand& x);
Array logical_and(const Operand& a, const Operand& b);
Array logical_or(const Operand& a, const Operand& b);

/// Converts elements. Floats to integers truncate; anything to bool is "differs from zero".
Array astype(const Operand& x, DType dtype);
/// The same bits as another dtype of the same size.
Array bitcast_convert_type(const Operand& x, DType dtype);
/// The value with a zero gradient.
Array stop_gradient(const Operand& x);
/// The values, not merged or moved across by any pass.
Array optimization_barrier(const Operand& x);

/// The common dtype of operands under promotion.
DType result_type(const Operand& a, const Operand& b);

}  // namespace stow
