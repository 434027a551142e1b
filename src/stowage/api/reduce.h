// Reductions, scans along an axis, order statistics, by the names of jax.numpy.
// Not products; see linalg.h.
#pragma once

#include "stowage/api/shaping.h"

namespace stow {

// Without `axes`, all axes are reduced. `keepdims` keeps reduced axes with extent 1.
// Types: as jax.numpy: sums of bool and i8 are i32, those of u8 are u32; floats keep their dtype,
// and sums of f16 and bf16 are computed in f32 and rounded once.
// Errors: TraceError for an axis that is out of range or given twice.

/// Options of a reduction besides axes. Each function documents which options it takes.
struct ReduceOptions {
  bool keepdims = false;
  /// Bool, broadcasts to x: only elements for which it is true are reduced.
  std::optional<Array> where = {};
  /// A scalar that is reduced as one more element.
  std::optional<Operand> initial = {};
  /// Dtype of the result and of the computation. Sums are in f32 if it is narrower.
  std::optional<DType> dtype = {};
};
// Errors of all functions with options: TraceError for an option that the function does not take, a
// `where` that is no bool or does not broadcast to x, an `initial` that is no scalar.

Array sum(const Operand& x, const Axes& axes = {}, bool keepdims = false);  ///< The sum.
Array prod(const Operand& x, const Axes& axes = {}, bool keepdims = false);  ///< The product.
/// The mean; f32 for integers.
Array mean(const Operand& x, const Axes& axes = {}, bool keepdims = false);
/// The sum of squared distances from the mean, divided by n - ddof; NaN if n - ddof is not
/// positive.
Array var(const Operand& x, const Axes& axes = {}, int ddof = 0, bool keepdims = false);
/// The root of var (jax.numpy.std).
Array standard_deviation(const Operand& x, const Axes& axes = {}, int ddof = 0,
                         bool keepdims = false);
/// The largest; propagates NaN. Errors: also TraceError for a reduction over no elements.
Array max(const Operand& x, const Axes& axes = {}, bool keepdims = false);
Array min(const Operand& x, const Axes& axes = {}, bool keepdims = false);  ///< The smallest.
Array any(const Operand& x, const Axes& axes = {}, bool keepdims = false);  ///< If one is not 0.
Array all(const Operand& x, const Axes& axes = {}, bool keepdims = false);  ///< If none is 0.

/// Takes all options.
Array sum(const Operand& x, const Axes& axes, const ReduceOptions& options);
Array prod(const Operand& x, const Axes& axes, const ReduceOptions& options);  ///< As sum.
/// Takes `where` and `dtype` (a float); NaN for a mean of no elements.
Array mean(const Operand& x, const Axes& axes, const ReduceOptions& options);
/// Takes `where` and `dtype` (a float).
Array var(const Operand& x, const Axes& axes, int ddof, const ReduceOptions& options);
/// The root of var.
Array standard_deviation(const Operand& x, const Axes& axes, int ddof,
                         const ReduceOptions& options);
/// Takes `where` and `initial`. Errors: also TraceError for a `where`, or a reduction over no
/// elements, without an `initial`.
Array max(const Operand& x, const Axes& axes, const ReduceOptions& options);
Array min(const Operand& x, const Axes& axes, const ReduceOptions& options);  ///< As max.
Array any(const Operand& x, const Axes& axes, const ReduceOptions& options);  ///< Takes `where`.
Array all(const Operand& x, const Axes& axes, const ReduceOptions& options);  ///< Takes `where`.

/// The first index (i32) of the largest element along an axis; without an axis, of x flattened.
Array argmax(const Operand& x, std::optional<int> axis = {}, bool keepdims = false);
/// argmax for the smallest element.
Array argmin(const Operand& x, std::optional<int> axis = {}, bool keepdims = false);

/// Running sums along an axis; without an axis, of x flattened. Types: i32 for bool, else that of
/// x.
Array cumsum(const Operand& x, std::optional<int> axis = {}, bool reverse = false);
/// Running products. The gradient, too, is exact if elements are zero.
Array cumprod(const Operand& x, std::optional<int> axis = {}, bool reverse = false);
/// Running maxima (lax.cummax); propagates NaN. If an element equals the running value, each gets
/// half the gradient.
Array cummax(const Operand& x, int axis = 0, bool reverse = false);
Array cummin(const Operand& x, int axis = 0, bool reverse = false);  ///< Running minima, as cummax.
/// Running log(sum(exp(x))), without overflow.
Array cumlogsumexp(const Operand& x, int axis = 0, bool reverse = false);
/// A linear recurrence along an axis: y[i] = a[i] * y[i - 1] + b[i], where y[-1] is 0.
Array linear_scan(const Operand& a, const Operand& b, int axis = 0, bool reverse = false);
/// x[1:] - x[:-1] along an axis, n times.
Array diff(const Operand& x, int axis = -1, int n = 1);

/// Sorts along an axis. NaN is the largest number: it comes last, or first if descending.
Array sort(const Operand& x, int axis = -1, bool descending = false);
/// The indices (i32) that sort along an axis. The sort is stable.
Array argsort(const Operand& x, int axis = -1, bool descending = false);
/// Sorts all operands together, by the first n_keys of them as keys, the first key first. The sort
/// is stable (lax.sort).
/// Errors: TraceError for operands of different shapes, or n_keys out of range.
std::vector<Array> sort(const std::vector<Array>& operands, int axis = -1, int n_keys = 1,
                        STOW_AT);
/// The indices (i32) that sort by several keys; the last key is the primary one.
Array lexsort(const std::vector<Array>& keys, int axis = -1, STOW_AT);
/// The k largest elements along an axis, in decreasing order, and their indices (i32). NaN is the
/// largest number, 0 is larger than -0, and equal elements keep their order.
std::pair<Array, Array> top_k(const Operand& x, int64_t k, int axis = -1);
/// The value below which a fraction q of the elements lies, interpolated linearly; NaN if an
/// element is NaN.
Array quantile(const Operand& x, double q, const Axes& axes = {}, bool keepdims = false);
/// The median; NaN if an element is NaN.
Array median(const Operand& x, const Axes& axes = {}, bool keepdims = false);
/// quantile of the elements that are no NaN; NaN if all are.
Array nanquantile(const Operand& x, double q, const Axes& axes = {}, bool keepdims = false);
/// median of the elements that are no NaN; NaN if all are.
Array nanmedian(const Operand& x, const Axes& axes = {}, bool keepdims = false);
/// The indices (i32) in the sorted vector `sorted` before which the values belong: before equal
/// elements, or with `right` after them. A binary search with log2(n) gathers; NaN is the largest
/// number.
Array searchsorted(const Operand& sorted, const Operand& values, bool right = false);
/// The number of elements that differ from zero (i32).
Array count_nonzero(const Operand& x, const Axes& axes = {}, bool keepdims = false);

/// log(sum(exp(x))) without overflow. If all elements are -inf, it is -inf, with zero gradients.
Array logsumexp(const Operand& x, const Axes& axes = {}, bool keepdims = false);
/// log(sum(b exp(x))); b broadcasts to x. NaN if the sum is negative. Takes `where`. An element of
/// b that is 0 has a gradient, unless all terms of the sum are 0.
Array logsumexp(const Operand& x, const Axes& axes, const ReduceOptions& options,
                const std::optional<Array>& b = {});

}  // namespace stow
