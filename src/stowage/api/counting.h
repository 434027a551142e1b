// Places and counts of elements that are not zero, counts of values, statistics without NaN.
// Not reductions in general; those are in reduce.h.
#pragma once

#include "stowage/api/reduce.h"

namespace stow {

// Shapes are static, so what NumPy returns in a length that depends on values has `size` places
// here, as under JAX's jit: the first in row-major order, and `fill_value` where there are fewer.

/// The index (i32) of each element that is not zero: one vector an axis of x.
/// Errors: TraceError for a scalar x or a negative size.
std::vector<Array> nonzero(const Operand& x, int64_t size, int64_t fill_value = 0);
/// As nonzero, for the flattened array.
Array flatnonzero(const Operand& x, int64_t size, int64_t fill_value = 0);
/// As nonzero, a row a place: i32[size, rank].
Array argwhere(const Operand& x, int64_t size, int64_t fill_value = 0);
/// The first `size` slices of an axis whose element of the vector `condition` is not zero, and
/// `fill_value` where there are fewer (jnp.compress with `size`).
Array compress(const Operand& condition, const Operand& x, int64_t size, int axis = 0,
               double fill_value = 0);
/// How often each of 0 to length - 1 is in x, or the sum of its weights; negative numbers count as
/// 0, larger ones not at all. Types: i32, or that of the weights.
/// Errors: TraceError where x is no vector of integers or the weights are of another shape.
Array bincount(const Operand& x, int64_t length, const std::optional<Array>& weights = {});
struct HistogramOptions {
  std::optional<std::pair<double, double>> range = {};  ///< Else from the smallest to the largest.
  std::optional<Array> weights = {};                    ///< Weights in the shape of x; else 1.
  bool density = false;  ///< Divided so that the integral is 1.
};
/// pair(how many elements lie in each of `bins` equal bins, the edges of these); the last bin holds
/// its upper edge. Types: floats, of integers f32.
/// Errors: TraceError for fewer than 1 bins, an empty x without a range, weights of another shape.
std::pair<Array, Array> histogram(const Operand& x, int64_t bins = 10,
                                  const HistogramOptions& options = {});
/// The same between `edges`, a rising vector.
std::pair<Array, Array> histogram(const Operand& x, const Array& edges,
                                  const HistogramOptions& options = {});
/// Index of the bin in which each element lies: i if bins[i - 1] <= x < bins[i] (right: < and <=).
/// `bins` is a rising or falling vector of edges. Types: i32.
Array digitize(const Operand& x, const Array& bins, bool right = false);
/// The line through the points (xp, fp) at x, xp rising; beyond them the first and the last of fp, or
/// what is given. Types: floats, of integers f32. Errors: TraceError unless xp and fp are vectors of
/// one extent, of at least one point.
Array interp(const Operand& x, const Operand& xp, const Operand& fp,
             const std::optional<double>& left = {}, const std::optional<double>& right = {});
/// True where an element is one of `tests`; compares with all of them.
Array isin(const Operand& x, const Operand& tests, bool invert = false);

/// The results of jnp.unique for x flattened, each vector `size` long.
struct Unique {
  Array values;   ///< Rising, each once, NaN too; then `fill_value`, or the smallest again.
  Array indices;  ///< Index of the first element that has each value (i32).
  Array inverse;  ///< Index of the value that each element of x has (i32), in the shape of x.
  Array counts;   ///< How many have it (i32); 0 where there is no further value.
};
/// Errors: TraceError for a negative size, or an empty x without a fill_value.
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
/// The mean weighted by `weights`, which broadcast. Of integers f32.
Array average(const Operand& x, const Operand& weights, const Axes& axes = {},
              bool keepdims = false);
/// quantile(x, q / 100).
Array percentile(const Operand& x, double q, const Axes& axes = {}, bool keepdims = false);

}  // namespace stow
