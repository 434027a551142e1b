// Reductions, scans along an axis, order statistics, by the names of jax.numpy.
// Not products; see linalg.h.
#pragma once

#include "stowage/api/shaping.h"

namespace stow {

// `axes` not given means all. `keepdims` leaves reduced axes with extent 1.
// Types: as jax.numpy: bool and i8 sum as i32, u8 as u32; a float's result is of its own type, and
// sums of f16 and bf16 are in f32 and rounded once.
// Errors: TraceError for an axis out of range or given twice.

Array sum(const Operand& x, const Axes& axes = {}, bool keepdims = false);
Array prod(const Operand& x, const Axes& axes = {}, bool keepdims = false);
/// Of integers f32.
Array mean(const Operand& x, const Axes& axes = {}, bool keepdims = false);
/// The mean squared distance from the mean, over n - ddof.
Array var(const Operand& x, const Axes& axes = {}, int ddof = 0, bool keepdims = false);
/// The root of var (jax.numpy.std).
Array standard_deviation(const Operand& x, const Axes& axes = {}, int ddof = 0,
                         bool keepdims = false);
/// NaN wins. Errors: also TraceError where nothing is reduced over.
Array max(const Operand& x, const Axes& axes = {}, bool keepdims = false);
Array min(const Operand& x, const Axes& axes = {}, bool keepdims = false);
Array any(const Operand& x, const Axes& axes = {}, bool keepdims = false);
Array all(const Operand& x, const Axes& axes = {}, bool keepdims = false);

/// The first index (i32) of the extreme along an axis, or of the flattened array.
Array argmax(const Operand& x, std::optional<int> axis = {}, bool keepdims = false);
Array argmin(const Operand& x, std::optional<int> axis = {}, bool keepdims = false);

/// Running sums along an axis, or of the flattened array.
Array cumsum(const Operand& x, std::optional<int> axis = {}, bool reverse = false);

/// Sorted along an axis; equal elements keep their order, NaN comes last.
Array sort(const Operand& x, int axis = -1, bool descending = false);
/// The indices (i32) that sort.
Array argsort(const Operand& x, int axis = -1, bool descending = false);

/// log(sum(exp(x))) without overflow.
Array logsumexp(const Operand& x, const Axes& axes = {}, bool keepdims = false);

}  // namespace stow
