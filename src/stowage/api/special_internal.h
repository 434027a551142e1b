// Helpers of the sources of special functions.
// Not public; see special.h.
#pragma once

#include <functional>
#include <initializer_list>
#include <span>
#include <vector>

#include "stowage/api/special.h"

namespace stow {

using Arrays = std::vector<Array>;  ///< Operands, or one array for each operand.

/// Returns value(operands) for operands that are promoted and broadcast to each other, rounded to
/// their dtype. Both functions take and return f64. `derivatives` returns the derivative by each
/// operand except the first `n_fixed`; differentiation by these is an error.
Array with_derivatives(const char* name, std::initializer_list<Operand> operands,
                       std::function<Array(const Arrays&)> value,
                       std::function<Arrays(const Arrays&)> derivatives, size_t n_fixed = 0);
/// with_derivatives without a derivative rule: differentiation goes through `value`.
Array compute_in_f64(const char* name, std::initializer_list<Operand> operands,
                     const std::function<Array(const Arrays&)>& value);

/// The derivative of log y by a for a sample y of the gamma distribution of shape a, at constant
/// igamma(a, y). `a` and `log_y` are f64; the result is accurate to the precision of `dtype`. It
/// has no gradient.
Array log_gamma_sample_derivative(const Array& a, const Array& log_y, DType dtype);

/// The sum of c[i] T_i(t / 2) over Chebyshev polynomials T_i, with the first term halved, by
/// Clenshaw's recurrence.
Array chebyshev(std::span<const double> c, const Array& t);

}  // namespace stow
