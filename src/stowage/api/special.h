// Special functions and parts of floats, by the names of jax.lax and jax.numpy.
// Not the everyday functions; those are in math.h.
#pragma once

#include "stowage/api/math.h"

namespace stow {

/// log |gamma(x)|. Types: floats, bf16 and f16 computed in f32; integers give f32.
/// Source: Lanczos 1964 (g = 7, nine terms), below 1/2 by reflection. Its gradient is digamma.
Array lgamma(const Operand& x);
/// The derivative of lgamma; NaN at whole numbers up to 0. Types: as lgamma.
/// Source: the derivative of the same series. Its gradient is the trigamma function, by recurrence
/// and its asymptotic series (Abramowitz and Stegun 6.4.12).
Array digamma(const Operand& x);
/// The derivatives of digamma: the n-th, n an integer. NaN where n is negative. Types: as lgamma.
/// Its gradient by x is that of order n + 1.
Array polygamma(const Operand& n, const Operand& x);
/// Hurwitz's zeta function: the sum of (q + k)^-x over whole k from 0, for x > 1. Infinite at x = 1
/// and at poles, NaN below. Source: Euler and Maclaurin's formula.
Array zeta(const Operand& x, const Operand& q);
/// log(gamma(a) gamma(b) / gamma(a + b)).
Array betaln(const Operand& a, const Operand& b);

// Computed in f64 and rounded to the dtype of the operands; with gradients but where it is said.

/// The regularized incomplete gamma function: what a gamma distribution of shape a has below x.
/// NaN where a or x is negative or both are 0. Its gradient by a has none itself.
/// Source: Abramowitz and Stegun 6.5.29 and 6.5.31.
Array igamma(const Operand& a, const Operand& x);
/// 1 - igamma(a, x), also where that is tiny.
Array igammac(const Operand& a, const Operand& x);
/// The derivative by a of a number x drawn from the gamma distribution of shape a: how it moves for
/// igamma(a, x) to stay. Without a gradient. Source: Figurnov et al. 2018.
Array random_gamma_grad(const Operand& a, const Operand& x);
/// The regularized incomplete beta function. It has a gradient by x alone.
/// Source: DLMF 8.17.22, by Lentz's method.
Array betainc(const Operand& a, const Operand& b, const Operand& x);
/// exp(-|x|) I0(x), I0 the modified Bessel function of the first kind. Source: Chebyshev series.
Array bessel_i0e(const Operand& x);
Array bessel_i1e(const Operand& x);  ///< The same of order 1.

/// The normal distribution function.
Array ndtr(const Operand& x);
Array log_ndtr(const Operand& x);  ///< Its logarithm, also where it is 0 or 1.
Array ndtri(const Operand& p);     ///< Its inverse, by Newton's method on log_ndtr.
/// log(x / (1 - x)), the inverse of logistic.
Array logit(const Operand& x);
/// x log(y), 0 where x is 0 (unless y is NaN).
Array xlogy(const Operand& x, const Operand& y);
Array xlog1py(const Operand& x, const Operand& y);  ///< The same with log1p(y).
/// -x log(x), 0 at 0; negative infinity for negative x.
Array entr(const Operand& x);
/// p log(p / q), 0 where p is 0; infinite where either is negative or q alone is 0.
Array rel_entr(const Operand& p, const Operand& q);
Array kl_div(const Operand& p, const Operand& q);  ///< rel_entr(p, q) - p + q.

/// True where the sign bit is set, of -0 and negative NaN too; of integers, where they are negative.
Array signbit(const Operand& x);
/// |x| with the sign of y.
Array copysign(const Operand& x, const Operand& y);
/// log(1 - exp(-x)) for x > 0, without cancellation.
Array log1mexp(const Operand& x);
/// x rounded, to nearest even, to a float of so many bits of exponent and mantissa; what is too large
/// becomes infinite, what is below the normal numbers 0. The gradient is rounded alike.
/// Errors: TraceError for no float, or fewer than 1 bit of exponent or 0 of mantissa.
Array reduce_precision(const Operand& x, int exponent_bits, int mantissa_bits);

}  // namespace stow
