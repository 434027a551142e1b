// Elementwise functions and operators over arrays, by the names of jax.numpy and jax.lax.
// Not reductions or products; see reduce.h and linalg.h.
#pragma once

#include "stowage/api/array.h"

namespace stow {

// Binary functions promote dtypes as JAX does (C++ scalars are weak: x * 2.0 keeps bf16) and
// broadcast shapes as NumPy does. Errors: TraceError where shapes do not broadcast or the op does
// not take the dtype; it names the op, the types and the place in the caller's source.

Array operator+(const Operand& a, const Operand& b);  ///< The sum.
Array operator-(const Operand& a, const Operand& b);  ///< The difference.
Array operator*(const Operand& a, const Operand& b);  ///< The product.
/// True division: integers give a float, as in NumPy.
Array operator/(const Operand& a, const Operand& b);
/// NumPy's remainder: it takes the sign of the divisor; of integers by zero it is 0.
Array operator%(const Operand& a, const Operand& b);
Array operator-(const Operand& a);  ///< The negative.
Array operator&(const Operand& a, const Operand& b);  ///< Bits of both; of bool "and".
Array operator|(const Operand& a, const Operand& b);  ///< Bits of either; of bool "or".
Array operator^(const Operand& a, const Operand& b);  ///< Bits of one alone; of bool "xor".
Array operator~(const Operand& a);  ///< The other bits; of bool "not".
Array operator<<(const Operand& a, const Operand& b);  ///< To the left; too far gives 0.
/// Arithmetic for signed types, logical for unsigned ones.
Array operator>>(const Operand& a, const Operand& b);

// Comparisons give bool arrays, element by element.
Array operator==(const Operand& a, const Operand& b);
Array operator!=(const Operand& a, const Operand& b);
Array operator<(const Operand& a, const Operand& b);
Array operator<=(const Operand& a, const Operand& b);
Array operator>(const Operand& a, const Operand& b);
Array operator>=(const Operand& a, const Operand& b);

Array& operator+=(Array& a, const Operand& b);  ///< a = a + b.
Array& operator-=(Array& a, const Operand& b);  ///< a = a - b.
Array& operator*=(Array& a, const Operand& b);  ///< a = a * b.
Array& operator/=(Array& a, const Operand& b);  ///< a = a / b.

Array add(const Operand& a, const Operand& b);  ///< As operator+.
Array subtract(const Operand& a, const Operand& b);  ///< As operator-.
Array multiply(const Operand& a, const Operand& b);  ///< As operator*.
Array divide(const Operand& a, const Operand& b);  ///< As operator/.
/// Rounds down, for integers and floats. Integers by zero: as div, less 1 where x is not 0.
Array floor_divide(const Operand& a, const Operand& b);
/// As operator%.
Array remainder(const Operand& a, const Operand& b);
Array mod(const Operand& a, const Operand& b);  ///< As operator%.
/// C's remainder: it takes the sign of the dividend; of integers by zero it is 0.
Array fmod(const Operand& a, const Operand& b);
/// C's division (lax.div): integers round towards zero, x / 0 is -1, the smallest over -1 wraps.
Array div(const Operand& a, const Operand& b);
/// C's remainder (lax.rem): of the dividend's sign; x rem 0 is x.
Array rem(const Operand& a, const Operand& b);
/// With an integer C++ scalar, repeated multiplication, also for integers; two integer arrays by
/// squaring, modulo 2^bits, and 0 to a negative power but of 1 and -1.
Array pow(const Operand& a, const Operand& b);
/// x to a whole power by repeated multiplication (lax.integer_pow).
Array integer_pow(const Operand& x, int n);
/// Propagates NaN.
Array maximum(const Operand& a, const Operand& b);
Array minimum(const Operand& a, const Operand& b);  ///< The smaller; propagates NaN.
/// log(exp(a) + exp(b)) without overflow.
Array logaddexp(const Operand& a, const Operand& b);
/// sqrt(a^2 + b^2) without overflow.
Array hypot(const Operand& a, const Operand& b);
/// The next number of the dtype after `a` towards `b`; without a gradient. Types: f32, f64, bf16.
Array nextafter(const Operand& a, const Operand& b);
/// lax.clamp: as clip, but of one dtype, and with no gradient where x equals a bound.
Array clamp(const Operand& low, const Operand& x, const Operand& high);
/// minimum(maximum(x, low), high); at a bound both share the gradient.
Array clip(const Operand& x, const Operand& low, const Operand& high);
/// Elements of `a` where `condition` is not zero, else of `b`; all three broadcast.
Array where(const Operand& condition, const Operand& a, const Operand& b);

Array negative(const Operand& x);  ///< As operator-.
Array abs(const Operand& x);  ///< Without the sign.
Array sign(const Operand& x);  ///< -1, 0 or 1; -0 and NaN stay.
Array square(const Operand& x);  ///< x times x.
// For integers, floor and ceil return the integers themselves.
Array floor(const Operand& x);
Array ceil(const Operand& x);
/// Halves to even, after so many decimals; integers are as they are.
/// Errors: TraceError for fewer than 0 decimals of integers.
Array round(const Operand& x, int decimals = 0);
/// Towards zero.
Array trunc(const Operand& x);

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
Array tan(const Operand& x);
Array asin(const Operand& x);
Array acos(const Operand& x);
Array atan(const Operand& x);
/// The angle of the point (x, y).
Array atan2(const Operand& y, const Operand& x);
Array sinh(const Operand& x);
Array cosh(const Operand& x);
Array asinh(const Operand& x);
Array acosh(const Operand& x);
Array atanh(const Operand& x);
/// The cube root.
Array cbrt(const Operand& x);
/// 2 to the power x.
Array exp2(const Operand& x);
Array log2(const Operand& x);
Array log10(const Operand& x);
Array erf(const Operand& x);
/// 1 - erf(x), also where that is tiny.
Array erfc(const Operand& x);
/// The inverse of erf.
Array erf_inv(const Operand& x);
/// 1 / (1 + exp(-x)).
Array logistic(const Operand& x);
Array sigmoid(const Operand& x);
Array reciprocal(const Operand& x);
Array isfinite(const Operand& x);
Array isnan(const Operand& x);
Array isinf(const Operand& x);
/// NaN becomes `nan`, infinities the largest numbers of the dtype, or what is given.
Array nan_to_num(const Operand& x, double nan = 0, std::optional<double> posinf = {},
                 std::optional<double> neginf = {});
/// |a - b| <= atol + rtol |b|; infinities equal themselves, NaN equals NaN if asked.
Array isclose(const Operand& a, const Operand& b, double rtol = 1e-5, double atol = 1e-8,
              bool equal_nan = false);

Array logical_not(const Operand& x);  ///< True where x is zero.
Array logical_and(const Operand& a, const Operand& b);  ///< True where both differ from zero.
Array logical_or(const Operand& a, const Operand& b);  ///< True where at least one does.
Array logical_xor(const Operand& a, const Operand& b);  ///< True where exactly one does.

// Bits of integers.
/// The number of ones (lax.population_count), of the dtype of x.
Array population_count(const Operand& x);
/// The number of ones in |x|, as u8.
Array bitwise_count(const Operand& x);
/// The number of leading zeros; that of 0 is the width.
Array clz(const Operand& x);
/// operator>> keeps the sign of signed types; this brings in zeros. A shift by the width or more
/// gives 0 (operator>>: the sign).
Array shift_right_logical(const Operand& a, const Operand& b);

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
