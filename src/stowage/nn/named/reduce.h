// Reductions and normalisations over axes by name.
// Not elementwise functions; those are friends of NamedArray.
#pragma once

#include "stowage/nn/named/named_array.h"

namespace stow::named {

// Without `axes`, all axes are reduced. Reduced axes are dropped, the others keep their order.
// Types and values are those of the functions of Array with these names.
// Errors: TraceError that lists the axes, for an axis that x lacks or that is given twice.

/// Options of a reduction.
struct NamedReduceOptions {
  /// Bool; its axes must be among those of x. Elements where it is false take no part.
  std::optional<NamedArray> where = {};
  /// A scalar that takes part as one more element. Only for sum, max and min.
  std::optional<Operand> initial = {};
  /// Dtype of the result and of the computation. Only for sum, mean and var.
  std::optional<DType> dtype = {};
};

NamedArray sum(const NamedArray& x, const AxisSelection& axes = {},
               const NamedReduceOptions& options = {}, STOW_AT);  ///< The sum.
NamedArray prod(const NamedArray& x, const AxisSelection& axes = {},
                const NamedReduceOptions& options = {}, STOW_AT);  ///< The product.
NamedArray mean(const NamedArray& x, const AxisSelection& axes = {},
                const NamedReduceOptions& options = {}, STOW_AT);  ///< The mean.
/// The mean squared distance from the mean, over n - ddof.
NamedArray var(const NamedArray& x, const AxisSelection& axes = {}, int ddof = 0,
               const NamedReduceOptions& options = {}, STOW_AT);
/// The square root of var.
NamedArray standard_deviation(const NamedArray& x, const AxisSelection& axes = {}, int ddof = 0,
                              const NamedReduceOptions& options = {}, STOW_AT);
NamedArray max(const NamedArray& x, const AxisSelection& axes = {},
               const NamedReduceOptions& options = {}, STOW_AT);  ///< The largest; NaN wins.
NamedArray min(const NamedArray& x, const AxisSelection& axes = {},
               const NamedReduceOptions& options = {}, STOW_AT);  ///< The smallest; NaN wins.
NamedArray any(const NamedArray& x, const AxisSelection& axes = {},
               const NamedReduceOptions& options = {}, STOW_AT);  ///< True if one is not 0.
NamedArray all(const NamedArray& x, const AxisSelection& axes = {},
               const NamedReduceOptions& options = {}, STOW_AT);  ///< True if none is 0.
/// log(sum(exp(x))) without overflow.
NamedArray logsumexp(const NamedArray& x, const AxisSelection& axes = {},
                     const NamedReduceOptions& options = {}, STOW_AT);

/// The first index (i32) of the largest element along one axis, which is dropped.
NamedArray argmax(const NamedArray& x, const AxisSelector& axis, STOW_AT);
/// The first index (i32) of the smallest element along one axis, which is dropped.
NamedArray argmin(const NamedArray& x, const AxisSelector& axis, STOW_AT);

// The functions below keep the axes of x.
/// Running sums along an axis.
NamedArray cumsum(const NamedArray& x, const AxisSelector& axis, bool reverse = false, STOW_AT);
/// exp(x) divided by its sum along the axes; stable.
NamedArray softmax(const NamedArray& x, const AxisSelection& axes = {}, STOW_AT);
/// The logarithm of softmax; stable.
NamedArray log_softmax(const NamedArray& x, const AxisSelection& axes = {}, STOW_AT);
/// (x - mean) / sqrt(var + eps) along the axes.
NamedArray standardize(const NamedArray& x, const AxisSelection& axes, double eps = 1e-5, STOW_AT);

}  // namespace stow::named
