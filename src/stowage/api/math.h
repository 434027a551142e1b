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
/// NumPy's remainder, which has the sign of the divisor. An integer modulo zero is 0.
Array operator%(const Operand& a, const Operand& b);
Array operator-(const Operand& a);  ///< The negative.
Array operator&(const Operand& a, const Operand& b);  ///< Bitwise "and"; logical for bool.
Array operator|(const Operand& a, const Operand& b);  ///< Bitwise "or"; logical for bool.
Array operator^(const Operand& a, const Operand& b);  ///< Bitwise "xor"; logical for bool.
Array operator~(const Operand& a);  ///< Bitwise "not"; logical for bool.
Array operator<<(const Operand& a, const Operand& b);  ///< Left shift; 0 for a shift >= the width.
/// Right shift: arithmetic for signed types, logical for unsigned ones.
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
/// The quotient rounded down, for integers and floats. An integer x divided by zero gives div(x,
/// 0), minus 1 if x is not 0.
Array floor_divide(const Operand& a, const Operand& b);
/// As operator%.
Array remainder(const Operand& a, const Operand& b);
Array mod(const Operand& a, const Operand& b);  ///< As operator%.
/// C's remainder, which has the sign of the dividend. For integers, the remainder by zero is 0.
Array fmod(const Operand& a, const Operand& b);
/// C's division (lax.div). Integers round towards zero; x / 0 is -1; the smallest integer / -1
/// wraps.
Array div(const Operand& a, const Operand& b);
/// C's remainder (lax.rem), which has the sign of the dividend. For integers, x rem 0 is x.
Array rem(const Operand& a, const Operand& b);
/// a to the power b. An integer C++ scalar as b means repeated multiplication, also for integer
/// arrays; there a negative b is an error. With an array of integers as b, integers are computed
/// modulo 2^bits, and a negative power gives 0, except of 1 and -1.
Array pow(const Operand& a, const Operand& b);
/// x to an integer power by repeated multiplication (lax.integer_pow).
Array integer_pow(const Operand& x, int n);
/// The larger; propagates NaN.
Array maximum(const Operand& a, const Operand& b);
Array minimum(const Operand& a, const Operand& b);  ///< The smaller; propagates NaN.
/// log(exp(a) + exp(b)) without overflow.
Array logaddexp(const Operand& a, const Operand& b);
/// sqrt(a^2 + b^2) without overflow.
Array hypot(const Operand& a, const Operand& b);
/// The next number of the dtype after `a` towards `b`; has no gradient. Types: f32, f64, bf16.
Array nextafter(const Operand& a, const Operand& b);
/// lax.clamp: as clip, but all three have one dtype, and x has a zero gradient where it equals a
/// bound.
Array clamp(const Operand& low, const Operand& x, const Operand& high);
/// minimum(maximum(x, low), high). Where x equals a bound, the two share the gradient.
Array clip(const Operand& x, const Operand& low, const Operand& high);
/// Elements of `a` where `condition` is not zero, else of `b`; all three broadcast.
Array where(const Operand& condition, const Operand& a, const Operand& b);

Array negative(const Operand& x);  ///< As operator-.
Array abs(const Operand& x);  ///< The absolute value.
Array sign(const Operand& x);  ///< -1, 0 or 1; -0 and NaN stay.
Array square(const Operand& x);  ///< x times x.
// For integers, floor and ceil return the integers themselves.
Array floor(const Operand& x);
Array ceil(const Operand& x);
/// Rounds to `decimals` decimal places, halves to even; integers are unchanged.
/// Errors: TraceError for negative `decimals` with integers.
Array round(const Operand& x, int decimals = 0);
/// Rounds towards zero.
Array trunc(const Operand& x);

// Functions whose results are floats; integers are converted to f32 first.
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
/// 1 - erf(x), accurate also where it is tiny.
Array erfc(const Operand& x);
/// The inverse of erf.
Array erf_inv(const Operand& x);
/// 1 / (1 + exp(-x)).
Array logistic(const Operand& x);
Array sigmoid(const Operand& x);
Array reciprocal(const Operand& x);

// Tests, which give bool arrays, and the replacement of NaN and infinities.
Array isfinite(const Operand& x);  ///< True where x is neither NaN nor infinite.
Array isnan(const Operand& x);     ///< True where x is NaN; false for integers.
Array isinf(const Operand& x);     ///< True where x is infinite; false for integers.
/// Replaces NaN by `nan`, infinity by `posinf` and minus infinity by `neginf`; without these, by
/// the largest and the lowest finite number of the dtype. Keeps the dtype; integers are unchanged.
Array nan_to_num(const Operand& x, double nan = 0, std::optional<double> posinf = {},
                 std::optional<double> neginf = {});
/// True where |a - b| <= atol + rtol |b|. Infinities of one sign are close; NaN is close to NaN if
/// `equal_nan`. Integers are compared as f32.
Array isclose(const Operand& a, const Operand& b, double rtol = 1e-5, double atol = 1e-8,
              bool equal_nan = false);

Array logical_not(const Operand& x);  ///< True where x is zero.
Array logical_and(const Operand& a, const Operand& b);  ///< True where both differ from zero.
Array logical_or(const Operand& a, const Operand& b);  ///< True where at least one does.
Array logical_xor(const Operand& a, const Operand& b);  ///< True where exactly one does.

// Bits of integers.
/// The number of one bits (lax.population_count), in the dtype of x.
Array population_count(const Operand& x);
/// The number of one bits in |x|, as u8.
Array bitwise_count(const Operand& x);
/// The number of leading zero bits; for 0, the width of the dtype.
Array clz(const Operand& x);
/// Right shift that fills with zeros, also for signed types; a shift by the width or more gives 0.
Array shift_right_logical(const Operand& a, const Operand& b);

/// Converts elements. Floats to integers truncate; anything to bool is "differs from zero".
Array astype(const Operand& x, DType dtype);
/// The bits of x as another dtype of the same width.
Array bitcast_convert_type(const Operand& x, DType dtype);
/// x, with a zero gradient.
Array stop_gradient(const Operand& x);
/// x. No pass merges the result with other values, or moves work across this op.
Array optimization_barrier(const Operand& x);

/// The common dtype of operands under promotion.
DType result_type(const Operand& a, const Operand& b);

}  // namespace stow
