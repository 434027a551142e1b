// gather and the scatters in XLA's general form, as jax.lax has them.
// Not indexing as NumPy has it; see Array::index, Array::at and take.
#pragma once

#include <functional>

#include "stowage/api/shaping.h"

namespace stow {

// Both move windows between an operand and an array with one window an index vector. Index vectors
// are the last axis of the indices, of any integer dtype; negative numbers are out of range.

/// The treatment of a window that does not lie wholly within the operand.
enum class GatherScatterMode : uint8_t {
  kFillOrDrop,       ///< It is filled with one value where it is read, dropped where written.
  kClip,             ///< It is moved to the nearest place within.
  kPromiseInBounds,  ///< There is none: no check is made. Reads are clipped, writes dropped.
};

/// jax.lax.GatherDimensionNumbers. Lists but start_index_map and start_indices_batching_dims
/// increase.
struct GatherDimensionNumbers {
  Dims offset_dims;           ///< Axes of the result that are axes of the window.
  Dims collapsed_slice_dims;  ///< Axes of the operand, of slice size 1, that the result drops.
  Dims start_index_map;  ///< The axis of the operand that each number of an index vector is for.
  /// Axes of the operand, of slice size 1, that go along with axes of the indices, in this order.
  Dims operand_batching_dims = {}, start_indices_batching_dims = {};
};

/// Windows of an array.
/// Shapes:  operand [N…]; start_indices [I…, n] with n entries in start_index_map; a slice size for
///          each axis of the operand; returns the axes I… in order, with offset_dims between them.
/// Types:   that of the operand. kFillOrDrop fills in `fill_value`, or else NaN, the smallest of a
///          signed integer, the largest of an unsigned one, or true. The gradient goes to what was read,
///          and nowhere where a value was filled in.
/// Errors:  TraceError "[gather] ..." if the numbers do not fit.
Array gather(const Operand& operand, const Operand& start_indices,
             const GatherDimensionNumbers& dimension_numbers, const Dims& slice_sizes,
             GatherScatterMode mode = GatherScatterMode::kPromiseInBounds,
             std::optional<ScalarValue> fill_value = {});

/// jax.lax.ScatterDimensionNumbers. Lists but scatter_dims_to_operand_dims and
/// scatter_indices_batching_dims increase.
struct ScatterDimensionNumbers {
  Dims update_window_dims;            ///< Axes of the updates that are axes of the window.
  Dims inserted_window_dims;          ///< Axes of the operand that the window lacks.
  Dims scatter_dims_to_operand_dims;  ///< As start_index_map.
  /// As in GatherDimensionNumbers.
  Dims operand_batching_dims = {}, scatter_indices_batching_dims = {};
};

/// An array with windows of updates written into it. Places that several windows reach take them in
/// row-major order of the indices: the last wins.
/// Shapes:  operand [N…]; scatter_indices [I…, n]; updates the axes I… in order, with
///          update_window_dims between them; returns [N…].
/// Types:   operand and updates of one dtype. What is overwritten has no gradient.
/// Errors:  TraceError "[scatter] ..." if the numbers do not fit.
Array scatter(const Operand& operand, const Operand& scatter_indices, const Operand& updates,
              const ScatterDimensionNumbers& dimension_numbers,
              GatherScatterMode mode = GatherScatterMode::kFillOrDrop);
/// The same with updates added.
Array scatter_add(const Operand& operand, const Operand& scatter_indices, const Operand& updates,
                  const ScatterDimensionNumbers& dimension_numbers,
                  GatherScatterMode mode = GatherScatterMode::kFillOrDrop);
/// With updates subtracted.
Array scatter_sub(const Operand& operand, const Operand& scatter_indices, const Operand& updates,
                  const ScatterDimensionNumbers& dimension_numbers,
                  GatherScatterMode mode = GatherScatterMode::kFillOrDrop);
/// With updates multiplied. Its gradient is exact at repeated places and zeros.
Array scatter_mul(const Operand& operand, const Operand& scatter_indices, const Operand& updates,
                  const ScatterDimensionNumbers& dimension_numbers,
                  GatherScatterMode mode = GatherScatterMode::kFillOrDrop);
/// With the smaller kept.
Array scatter_min(const Operand& operand, const Operand& scatter_indices, const Operand& updates,
                  const ScatterDimensionNumbers& dimension_numbers,
                  GatherScatterMode mode = GatherScatterMode::kFillOrDrop);
/// With the larger kept.
Array scatter_max(const Operand& operand, const Operand& scatter_indices, const Operand& updates,
                  const ScatterDimensionNumbers& dimension_numbers,
                  GatherScatterMode mode = GatherScatterMode::kFillOrDrop);
/// `function`, elementwise, of what is there, as often as a place is reached. Windows have the shape
/// that updates of `update_shape` would give them. It has no gradient, as in JAX.
/// Errors:  also TraceError where the function changes the type.
Array scatter_apply(const Operand& operand, const Operand& scatter_indices,
                    const std::function<Array(const Array&)>& function,
                    const ScatterDimensionNumbers& dimension_numbers, const Shape& update_shape,
                    GatherScatterMode mode = GatherScatterMode::kFillOrDrop);

}  // namespace stow
