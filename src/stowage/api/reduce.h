// Reductions, scans along an axis, order statistics, by the names of jax.numpy.
// Not products; see linalg.h.
#pragma once

#include "stowage/api/shaping.h"

namespace stow {

// `axes` not given means all. `keepdims` leaves reduced axes with extent 1.
// Types: as jax.numpy: bool and i8 sum as i32, u8 as u32; a float's result is of its own type, and
// sums of f16 and bf16 are in f32 and rounded once.
// Errors: TraceError for an axis out of range or given twice.

/// Options of a reduction beside axes; each function says what it takes.
struct ReduceOptions {
  bool keepdims = false;
  /// Bool, of a shape that broadcasts to x's: what is not true there takes no part.
  std::optional<Array> where = {};
  /// A scalar that takes part as one more element.
  std::optional<Operand> initial = {};
  /// Dtype of the result and of the computation. Sums are in f32 if it is narrower.
  std::optional<DType> dtype = {};
};
// Errors of all that take options: TraceError for an option that the function does not take, a
// `where` that is no bool or does not broadcast to x, an `initial` that is no scalar.

Array sum(const Operand& x, const Axes& axes = {}, bool keepdims = false);  ///< The sum.
Array prod(const Operand& x, const Axes& axes = {}, bool keepdims = false);  ///< The product.
/// The mean; f32 for integers.
Array mean(const Operand& x, const Axes& axes = {}, bool keepdims = false);
/// The mean squared distance from the mean, over n - ddof; NaN where that is not positive.
Array var(const Operand& x, const Axes& axes = {}, int ddof = 0, bool keepdims = false);
/// The root of var (jax.numpy.std).
Array standard_deviation(const Operand& x, const Axes& axes = {}, int ddof = 0,
                         bool keepdims = false);
/// NaN wins. Errors: also TraceError where nothing is reduced over.
Array max(const Operand& x, const Axes& axes = {}, bool keepdims = false);
Array min(const Operand& x, const Axes& axes = {}, bool keepdims = false);  ///< The smallest.
Array any(const Operand& x, const Axes& axes = {}, bool keepdims = false);  ///< If one is not 0.
Array all(const Operand& x, const Axes& axes = {}, bool keepdims = false);  ///< If none is 0.

Array sum(const Operand& x, const Axes& axes, const ReduceOptions& options);   ///< Takes all.
Array prod(const Operand& x, const Axes& axes, const ReduceOptions& options);  ///< Takes all.
/// Takes `where` and `dtype` (a float); NaN where nothing takes part.
Array mean(const Operand& x, const Axes& axes, const ReduceOptions& options);
/// Takes `where` and `dtype` (a float).
Array var(const Operand& x, const Axes& axes, int ddof, const ReduceOptions& options);
/// The root of var.
Array standard_deviation(const Operand& x, const Axes& axes, int ddof,
                         const ReduceOptions& options);
/// Takes `where` and `initial`. Errors: also TraceError for a `where`, or nothing to reduce over,
/// without an `initial`.
Array max(const Operand& x, const Axes& axes, const ReduceOptions& options);
Array min(const Operand& x, const Axes& axes, const ReduceOptions& options);  ///< Likewise.
Array any(const Operand& x, const Axes& axes, const ReduceOptions& options);  ///< Takes `where`.
Array all(const Operand& x, const Axes& axes, const ReduceOptions& options);  ///< Takes `where`.

/// The first index (i32) of the extreme along an axis, or of the flattened array.
Array argmax(const Operand& x, std::optional<int> axis = {}, bool keepdims = false);
Array argmin(const Operand& x, std::optional<int> axis = {}, bool keepdims = false);  ///< The smallest's.

/// Running sums (of bool i32, else of the dtype) along an axis, or of the flattened array.
Array cumsum(const Operand& x, std::optional<int> axis = {}, bool reverse = false);
/// Running products; exact where elements are zero, in the gradient too.
Array cumprod(const Operand& x, std::optional<int> axis = {}, bool reverse = false);
/// Running extremes (lax.cummax, lax.cummin). NaN stays. Where the running value and an element are
/// equal, each gets half the gradient.
Array cummax(const Operand& x, int axis = 0, bool reverse = false);
Array cummin(const Operand& x, int axis = 0, bool reverse = false);  ///< The smallest so far.
/// log(sum(exp(x))) so far, without overflow.
Array cumlogsumexp(const Operand& x, int axis = 0, bool reverse = false);
/// y[i] = a[i] * y[i - 1] + b[i], y[-1] being 0: a linear recurrence along an axis.
Array linear_scan(const Operand& a, const Operand& b, int axis = 0, bool reverse = false);
/// x[1:] - x[:-1] along an axis, n times.
Array diff(const Operand& x, int axis = -1, int n = 1);

/// Sorted along an axis; NaN counts as the largest: it comes last, or first when descending.
Array sort(const Operand& x, int axis = -1, bool descending = false);
/// The indices (i32) that sort; those of equal elements rise.
Array argsort(const Operand& x, int axis = -1, bool descending = false);
/// All operands in the order of the first; of what is equal there, of the second, and so on for as
/// many as are keys; what is equal in all keys stays in order (lax.sort).
/// Errors: TraceError for operands of several shapes, or n_keys out of range.
std::vector<Array> sort(const std::vector<Array>& operands, int axis = -1, int n_keys = 1,
                        STOW_AT);
/// The indices (i32) that sort by the last key; of what is equal there, by the one before it.
Array lexsort(const std::vector<Array>& keys, int axis = -1, STOW_AT);
/// The k largest along an axis, the largest first, and their indices (i32); NaN is the largest, 0
/// is larger than -0, and of equal elements the first comes first.
std::pair<Array, Array> top_k(const Operand& x, int64_t k, int axis = -1);
/// The value below which a fraction q of the elements lies, interpolated linearly. NaN if one is.
Array quantile(const Operand& x, double q, const Axes& axes = {}, bool keepdims = false);
Array median(const Operand& x, const Axes& axes = {}, bool keepdims = false);  ///< The middle one.
/// The same of what is no NaN; NaN where there is nothing else.
Array nanquantile(const Operand& x, double q, const Axes& axes = {}, bool keepdims = false);
Array nanmedian(const Operand& x, const Axes& axes = {}, bool keepdims = false);  ///< The middle one.
/// Places of the values in the sorted vector `sorted`: before equal ones, or after (right).
/// A binary search, as many gathers as `sorted` halves; NaN is the largest number.
Array searchsorted(const Operand& sorted, const Operand& values, bool right = false);
/// How many elements differ from zero (i32).
Array count_nonzero(const Operand& x, const Axes& axes = {}, bool keepdims = false);

/// log(sum(exp(x))) without overflow. Of nothing but -inf it is -inf, with gradients of 0.
Array logsumexp(const Operand& x, const Axes& axes = {}, bool keepdims = false);
/// log(sum(b exp(x))), b broadcast to x: NaN where the sum is negative. Takes `where`. A term times 0
/// has a gradient by that 0, unless nothing else is left to sum.
Array logsumexp(const Operand& x, const Axes& axes, const ReduceOptions& options,
                const std::optional<Array>& b = {});

}  // namespace stow
