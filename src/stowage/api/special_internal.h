// Shared by the files of special functions.
// Not public; see special.h.
#pragma once

#include <functional>
#include <initializer_list>
#include <span>
#include <vector>

#include "stowage/api/special.h"

namespace stow {

using Arrays = std::vector<Array>;  ///< Operands, or what belongs to each of them.

/// value(operands) of operands that were promoted and broadcast to each other. Both functions see and
/// give f64, which is rounded to the dtype of the operands; `slopes` gives the derivative by each but
/// the first `n_fixed`, by which it is an error to differentiate.
Array with_slopes(const char* name, std::initializer_list<Operand> operands,
                  std::function<Array(const Arrays&)> value,
                  std::function<Arrays(const Arrays&)> slopes, size_t n_fixed = 0);
/// The same without a rule: value(operands) is differentiated itself.
Array in_f64(const char* name, std::initializer_list<Operand> operands,
             const std::function<Array(const Arrays&)>& value);

/// The derivative of log y by a, where y of f64 is drawn from a gamma distribution: what keeps the
/// part of the distribution below y the same. Both in f64, and exact to what `dtype` holds. Without a
/// gradient.
Array log_gamma_sample_slope(const Array& a, const Array& log_y, DType dtype);

/// A sum of c[i] T_i(t / 2) by Clenshaw's recurrence, the first term halved.
Array chebyshev(std::span<const double> c, const Array& t);

}  // namespace stow
