// Indices of nonzero elements, histograms and counts of values, reductions that skip NaN.
// Not reductions in general; those are in reduce.h.
#pragma once

#include "stowage/api/reduce.h"

namespace stow {

// Shapes are static. Results whose length in NumPy depends on values have length `size` here, as
// under JAX's jit: the first `size` results in row-major order, padded with `fill_value`.

/// The indices (i32) of the elements that are not zero: one vector of length `size` for each axis.
/// Errors: TraceError for a scalar x or a negative size.
std::vector<Array> nonzero(const Operand& x, int64_t size, int64_t fill_value = 0);
/// nonzero of the flattened array, as one vector.
Array flatnonzero(const Operand& x, int64_t size, int64_t fill_value = 0);
/// nonzero with one row for each element: i32[size, rank].
Array argwhere(const Operand& x, int64_t size, int64_t fill_value = 0);
/// The first `size` slices of an axis for which the vector `condition` is not zero, padded with
/// `fill_value` (jnp.compress with `size`).
Array compress(const Operand& condition, const Operand& x, int64_t size, int axis = 0,
               double fill_value = 0);
/// For each of 0 to length - 1, the number of its occurrences in x, or the sum of their weights.
/// Negative elements count as 0; elements from `length` on are ignored. Types: i32, or the dtype of
/// the weights.
/// Errors: TraceError if x is not a vector of integers, or the weights have another shape.
Array bincount(const Operand& x, int64_t length, const std::optional<Array>& weights = {});
struct HistogramOptions {
  std::optional<std::pair<double, double>> range = {};  ///< None: the smallest and largest of x.
  std::optional<Array> weights = {};                    ///< Weights of the shape of x; none: 1.
  bool density = false;  ///< True: normalized to an integral of 1.
};
/// Returns pair(number of elements in each of `bins` bins of equal width, their edges). The last
/// bin includes its upper edge. Types: floats; f32 if x has integers.
/// Errors: TraceError for fewer than 1 bins, an empty x without a range, weights of another shape.
std::pair<Array, Array> histogram(const Operand& x, int64_t bins = 10,
                                  const HistogramOptions& options = {});
/// histogram with the bins between `edges`, an increasing vector.
std::pair<Array, Array> histogram(const Operand& x, const Array& edges,
                                  const HistogramOptions& options = {});
/// The index of the bin of each element: i if bins[i - 1] <= x < bins[i], with `right` if
/// bins[i - 1] < x <= bins[i]. `bins` is an increasing or decreasing vector of edges. Types: i32.
Array digitize(const Operand& x, const Array& bins, bool right = false);
/// The piecewise linear function through the points (xp, fp), evaluated at x; xp increases. Below
/// the first point the value is `left`, by default the first of fp; above the last one `right`, by
/// default the last of fp. Types: floats; f32 for integers. Errors: TraceError unless xp and fp are
/// vectors of one extent, at least 1.
Array interp(const Operand& x, const Operand& xp, const Operand& fp,
             const std::optional<double>& left = {}, const std::optional<double>& right = {});
/// True for each element of x that is in `tests`; with `invert`, for each that is not. Compares all
/// pairs.
Array isin(const Operand& x, const Operand& tests, bool invert = false);

/// The results of jnp.unique for x flattened. All vectors except `inverse` have length `size`.
struct Unique {
  Array values;   ///< The distinct values, increasing, NaN once. Padding: fill_value or the first.
  Array indices;  ///< Index in x flattened of the first element of each value (i32).
  Array inverse;  ///< Index in `values` of each element of x (i32), in the shape of x.
  Array counts;   ///< Number of elements of each value (i32); 0 for padding.
};
/// The distinct elements of x. Errors: TraceError for a negative size, or an empty x without a
/// fill_value.
Unique unique(const Operand& x, int64_t size, const std::optional<double>& fill_value = {});

// Reductions that skip NaN. If all elements are NaN: 0 for the sum, 1 for the product, else NaN.
Array nansum(const Operand& x, const Axes& axes = {}, bool keepdims = false);
Array nanprod(const Operand& x, const Axes& axes = {}, bool keepdims = false);
Array nanmax(const Operand& x, const Axes& axes = {}, bool keepdims = false);
Array nanmin(const Operand& x, const Axes& axes = {}, bool keepdims = false);
Array nanmean(const Operand& x, const Axes& axes = {}, bool keepdims = false);
Array nanvar(const Operand& x, const Axes& axes = {}, int ddof = 0, bool keepdims = false);
Array nanstd(const Operand& x, const Axes& axes = {}, int ddof = 0, bool keepdims = false);

/// max - min.
Array ptp(const Operand& x, const Axes& axes = {}, bool keepdims = false);
/// The mean weighted by `weights`, which broadcast to x; f32 for integers.
Array average(const Operand& x, const Operand& weights, const Axes& axes = {},
              bool keepdims = false);
/// quantile(x, q / 100).
Array percentile(const Operand& x, double q, const Axes& axes = {}, bool keepdims = false);

}  // namespace stow
