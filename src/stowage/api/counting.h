// Where elements are and how many: places of what is not zero, counts, statistics without NaN.
// Not reductions in general; those are in reduce.h.
#pragma once

#include "stowage/api/reduce.h"

namespace stow {

// Shapes are static, so what NumPy returns in a length that depends on values has `size` places
// here, as under JAX's jit: the first in row-major order, and `fill_value` where there are fewer.

/// The index (i32) of each element that is not zero: one vector an axis of x.
/// Errors: TraceError for a scalar x or a negative size.
std::vector<Array> nonzero(const Operand& x, int64_t size, int64_t fill_value = 0);
/// Of the flattened array.
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

// As without "nan", NaN not counting. Of nothing but NaN: 0, 1, and NaN for the others.
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
