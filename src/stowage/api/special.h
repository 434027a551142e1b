// Special functions and operations on parts of floats, by the names of jax.lax and jax.numpy.
// Not the common elementwise functions; those are in math.h.
#pragma once

#include "stowage/api/math.h"

namespace stow {

/// log |gamma(x)|. Types: floats; bf16 and f16 are computed in f32, and integers give f32.
/// Source: Lanczos 1964 (g = 7, nine terms), below 1/2 by reflection. Its gradient is digamma.
Array lgamma(const Operand& x);
/// The derivative of lgamma; NaN at whole numbers up to 0. Types: as lgamma.
/// Source: the derivative of the same series. Its gradient is the trigamma function, by recurrence
/// and its asymptotic series (Abramowitz and Stegun 6.4.12).
Array digamma(const Operand& x);
/// The n-th derivative of digamma, for an integer n; NaN if n is negative. Types: as lgamma.
/// Its gradient by x is polygamma(n + 1, x).
Array polygamma(const Operand& n, const Operand& x);
/// Hurwitz's zeta function: the sum of (q + k)^-x over integers k >= 0, for x > 1. Infinite at x =
/// 1 and at poles, NaN for x < 1. Source: Euler and Maclaurin's formula.
Array zeta(const Operand& x, const Operand& q);
/// log(gamma(a) gamma(b) / gamma(a + b)).
Array betaln(const Operand& a, const Operand& b);

// The following functions are computed in f64 and rounded to the dtype of the operands. They have
// gradients unless documented otherwise.

/// The regularized lower incomplete gamma function: the probability that a gamma variable of shape
/// a is below x. NaN if a or x is negative, or both are 0. Its gradient by a has no gradient
/// itself.
/// Source: Abramowitz and Stegun 6.5.29 and 6.5.31.
Array igamma(const Operand& a, const Operand& x);
/// 1 - igamma(a, x), also accurate if that is tiny.
Array igammac(const Operand& a, const Operand& x);
/// The derivative by a of a sample x of the gamma distribution of shape a, at constant igamma(a,
/// x). It has no gradient. Source: Figurnov et al. 2018.
Array random_gamma_grad(const Operand& a, const Operand& x);
/// The regularized incomplete beta function. It has a gradient by x only.
/// Source: DLMF 8.17.22, by Lentz's method.
Array betainc(const Operand& a, const Operand& b, const Operand& x);
/// exp(-|x|) I0(x), with the modified Bessel function of the first kind I0. Source: Chebyshev
/// series.
Array bessel_i0e(const Operand& x);
Array bessel_i1e(const Operand& x);  ///< exp(-|x|) I1(x).

/// The normal distribution function.
Array ndtr(const Operand& x);
Array log_ndtr(const Operand& x);  ///< log(ndtr(x)), also accurate if ndtr(x) rounds to 0 or 1.
Array ndtri(const Operand& p);     ///< The inverse of ndtr, by Newton's method on log_ndtr.
/// log(x / (1 - x)), the inverse of logistic.
Array logit(const Operand& x);
/// x log(y), 0 where x is 0 (unless y is NaN).
Array xlogy(const Operand& x, const Operand& y);
Array xlog1py(const Operand& x, const Operand& y);  ///< xlogy with log1p(y).
/// -x log(x), 0 at 0; negative infinity for negative x.
Array entr(const Operand& x);
/// p log(p / q); 0 where p is 0; infinite where p or q is negative, or only q is 0.
Array rel_entr(const Operand& p, const Operand& q);
Array kl_div(const Operand& p, const Operand& q);  ///< rel_entr(p, q) - p + q.

/// True where the sign bit is set, which includes -0 and negative NaN; for integers, where x < 0.
Array signbit(const Operand& x);
/// |x| with the sign of y.
Array copysign(const Operand& x, const Operand& y);
/// log(1 - exp(-x)) for x > 0, without cancellation.
Array log1mexp(const Operand& x);
/// Rounds x to nearest even in a float format with these numbers of exponent and mantissa bits.
/// Numbers that are too large become infinite, numbers below the smallest normal one become 0. The
/// gradient is rounded in the same way.
/// Errors: TraceError if x is no float, exponent_bits < 1 or mantissa_bits < 0.
Array reduce_precision(const Operand& x, int exponent_bits, int mantissa_bits);

}  // namespace stow
