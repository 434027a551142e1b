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
/// Whether the sign bit is set, of -0 and negative NaN too; of integers, whether they are negative.
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
