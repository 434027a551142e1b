// Reductions and normalisations over axes by name.
// Not elementwise functions; those are friends of NamedArray.
#pragma once

#include "stowage/nn/named/named_array.h"

namespace stow::named {

// Axes not given mean all; reduced axes are dropped, the others keep their order. Types and values
// are those of the functions of Array with these names.
// Errors: TraceError that lists the axes where one is not there, or is given twice.

/// Options of a reduction beside axes.
struct NamedReduceOptions {
  /// Bool; its axes must be among those of x. What is not true there takes no part.
  std::optional<NamedArray> where = {};
  /// A scalar that takes part as one more element. Of sum, max and min.
  std::optional<Operand> initial = {};
  /// Dtype of the result and of the computation. For sum, mean and var alone.
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
/// The root of var.
NamedArray standard_deviation(const NamedArray& x, const AxisSelection& axes = {}, int ddof = 0,
                              const NamedReduceOptions& options = {}, STOW_AT);
NamedArray max(const NamedArray& x, const AxisSelection& axes = {},
               const NamedReduceOptions& options = {}, STOW_AT);  ///< The largest; NaN wins.
NamedArray min(const NamedArray& x, const AxisSelection& axes = {},
               const NamedReduceOptions& options = {}, STOW_AT);  ///< The smallest; NaN wins.
NamedArray any(const NamedArray& x, const AxisSelection& axes = {},
               const NamedReduceOptions& options = {}, STOW_AT);  ///< If one is not 0.
NamedArray all(const NamedArray& x, const AxisSelection& axes = {},
               const NamedReduceOptions& options = {}, STOW_AT);  ///< If none is 0.
/// log(sum(exp(x))) without overflow.
NamedArray logsumexp(const NamedArray& x, const AxisSelection& axes = {},
                     const NamedReduceOptions& options = {}, STOW_AT);

/// The first index (i32) of the extreme along one axis, which is dropped.
NamedArray argmax(const NamedArray& x, const AxisSelector& axis, STOW_AT);
NamedArray argmin(const NamedArray& x, const AxisSelector& axis, STOW_AT);  ///< The smallest's.

// These keep the axes of x.
/// Running sums along an axis.
NamedArray cumsum(const NamedArray& x, const AxisSelector& axis, bool reverse = false, STOW_AT);
/// exp(x) over its sum along the axes; stable.
NamedArray softmax(const NamedArray& x, const AxisSelection& axes = {}, STOW_AT);
/// The logarithm of softmax; stable.
NamedArray log_softmax(const NamedArray& x, const AxisSelection& axes = {}, STOW_AT);
/// (x - mean) / sqrt(var + eps) along the axes.
NamedArray standardize(const NamedArray& x, const AxisSelection& axes, double eps = 1e-5, STOW_AT);

}  // namespace stow::named
