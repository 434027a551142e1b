// gather and scatter in XLA's general form, by the names of jax.lax.
// Not NumPy's indexing; see Array::index, Array::at and take.
#pragma once

#include <functional>

#include "stowage/api/shaping.h"

namespace stow {

// A gather reads a window of the operand for each index vector; a scatter writes one. The last axis
// of the indices holds the components of an index vector. Indices have any integer dtype; negative
// indices are out of range.

/// The treatment of a window that does not lie wholly within the operand.
enum class GatherScatterMode : uint8_t {
  kFillOrDrop,       ///< A gather fills the window with one value; a scatter drops it.
  kClip,             ///< The window is moved to the nearest position within the operand.
  kPromiseInBounds,  ///< The caller promises that there is none. Else gathers clip, scatters drop.
};

/// jax.lax.GatherDimensionNumbers. All lists except start_index_map and start_indices_batching_dims
/// increase.
struct GatherDimensionNumbers {
  Dims offset_dims;           ///< Axes of the result that are axes of the window.
  Dims collapsed_slice_dims;  ///< Axes of the operand, of slice size 1, that the result drops.
  Dims start_index_map;  ///< The operand axis of each component of an index vector.
  /// Batch axes: operand axes of slice size 1, each paired with an axis of the indices.
  Dims operand_batching_dims = {}, start_indices_batching_dims = {};
};

/// Reads windows of an array.
/// Shapes:  operand [N…]; start_indices [I…, n] with n entries in start_index_map; a slice size for
///          each axis of the operand; returns the axes I… in order, with offset_dims between them.
/// Types:   the dtype of the operand. The default of `fill_value` is NaN, the smallest signed or
///          largest unsigned integer, or true. Filled elements have no gradient.
/// Errors:  TraceError "[gather] ..." if the numbers do not fit.
Array gather(const Operand& operand, const Operand& start_indices,
             const GatherDimensionNumbers& dimension_numbers, const Dims& slice_sizes,
             GatherScatterMode mode = GatherScatterMode::kPromiseInBounds,
             std::optional<ScalarValue> fill_value = {});

/// jax.lax.ScatterDimensionNumbers. All lists except scatter_dims_to_operand_dims and
/// scatter_indices_batching_dims increase.
struct ScatterDimensionNumbers {
  Dims update_window_dims;            ///< Axes of the updates that are axes of the window.
  Dims inserted_window_dims;          ///< Axes of the operand that the window lacks.
  Dims scatter_dims_to_operand_dims;  ///< As start_index_map.
  /// As in GatherDimensionNumbers.
  Dims operand_batching_dims = {}, scatter_indices_batching_dims = {};
};

/// Returns the operand with windows of `updates` written into it. If windows overlap, they are
/// applied in row-major order of the index vectors, so the last one wins.
/// Shapes:  operand [N…]; scatter_indices [I…, n]; updates the axes I… in order, with
///          update_window_dims between them; returns [N…].
/// Types:   operand and updates of one dtype. An overwritten element of the operand has a zero
///          gradient, and so has an update that is overwritten or dropped.
/// Errors:  TraceError "[scatter] ..." if the numbers do not fit.
Array scatter(const Operand& operand, const Operand& scatter_indices, const Operand& updates,
              const ScatterDimensionNumbers& dimension_numbers,
              GatherScatterMode mode = GatherScatterMode::kFillOrDrop);
/// scatter that adds updates.
Array scatter_add(const Operand& operand, const Operand& scatter_indices, const Operand& updates,
                  const ScatterDimensionNumbers& dimension_numbers,
                  GatherScatterMode mode = GatherScatterMode::kFillOrDrop);
/// scatter that subtracts updates.
Array scatter_sub(const Operand& operand, const Operand& scatter_indices, const Operand& updates,
                  const ScatterDimensionNumbers& dimension_numbers,
                  GatherScatterMode mode = GatherScatterMode::kFillOrDrop);
/// scatter that multiplies by updates. Its gradient is exact for repeated indices and zeros.
Array scatter_mul(const Operand& operand, const Operand& scatter_indices, const Operand& updates,
                  const ScatterDimensionNumbers& dimension_numbers,
                  GatherScatterMode mode = GatherScatterMode::kFillOrDrop);
/// scatter that keeps the smaller of element and update.
Array scatter_min(const Operand& operand, const Operand& scatter_indices, const Operand& updates,
                  const ScatterDimensionNumbers& dimension_numbers,
                  GatherScatterMode mode = GatherScatterMode::kFillOrDrop);
/// scatter that keeps the larger of element and update.
Array scatter_max(const Operand& operand, const Operand& scatter_indices, const Operand& updates,
                  const ScatterDimensionNumbers& dimension_numbers,
                  GatherScatterMode mode = GatherScatterMode::kFillOrDrop);
/// Replaces each element e in a window by function(e), once for each window that contains it.
/// `function` works element by element. Windows are those of updates of shape `update_shape`. It
/// has no gradient, as in JAX.
/// Errors:  also TraceError if the function changes the type.
Array scatter_apply(const Operand& operand, const Operand& scatter_indices,
                    const std::function<Array(const Array&)>& function,
                    const ScatterDimensionNumbers& dimension_numbers, const Shape& update_shape,
                    GatherScatterMode mode = GatherScatterMode::kFillOrDrop);

}  // namespace stow
