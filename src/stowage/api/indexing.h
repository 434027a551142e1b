// Resolution of axes, ranges and indices, shared by the functions that take them.
// Not public; the functions are in shaping.h and at.h.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "stowage/api/shaping.h"
#include "stowage/base/inside.h"
#include "stowage/ir/params.h"

namespace stow {

/// Returns the axes in [0, rank), in the order given. If `axes` is not given: all axes if `all`,
/// else none. Errors: TraceError for an axis that is out of range or given twice.
Dims normalize_axes(std::string_view name, const Axes& axes, const ArrayType& type, bool all);

/// Adds `extent` to negative indices.
Array resolve_negative(const Array& indices, int64_t extent);

/// The gather of take_along_axis: elements of x along one axis, by indices of x's rank. Each other
/// axis is a batch axis, or, if the indices have extent 1 there, an axis of the window.
struct AlongAxisGather {
  AlongAxisGather(const Shape& x, const Shape& indices, int64_t axis);
  GatherParams params;
  Dims vectors;  ///< The shape of the indices as index vectors.
};

/// The value that IndexMode::kFill reads for an index out of range.
ScalarValue out_of_range_value(DType dtype);

/// Clamps index vectors so that the window of each lies within x. `p`: a gather of x.
Array clamp_starts(const Array& indices, const Array& x, const GatherParams& p);
/// Returns `read`, the result of the gather `p` of x, with `value` in each window that does not lie
/// wholly within x.
Array fill_out_of_bounds(const Array& read, const Array& indices, const Array& x,
                         const GatherParams& p, const ScalarValue& value);

/// Returns the elements `sources` of an axis in that order, as a concatenation of slices (reversed
/// ones if the numbers decrease) and repetitions.
Array take_static(const Array& x, int axis, const std::vector<int64_t>& sources);

/// Returns x with an elementwise function applied to each element as many times as `counts` says,
/// in a loop.
Array apply_repeatedly(const Array& x, const Array& counts,
                       const std::function<Array(const Array&)>& function);

/// A list of Index resolved for an array, in three steps: a slice along every axis; a gather of the
/// slice, if there are index arrays; a reshape that adds new axes. Errors: TraceError "[index] …".
struct ResolvedIndex {
  ResolvedIndex(const Array& x, std::span<const Index> indices);

  /// The slice has positive steps; the axes `reversed` are reversed after it.
  SliceParams slice;
  Dims reversed;
  Shape cut;  ///< Shape of the slice. It keeps axes with index arrays whole.
  bool has_arrays = false;
  GatherParams gather;  ///< Gather of the slice, if has_arrays.
  Array vectors;        ///< Index vectors of the gather; negative indices are resolved.
  Shape read;           ///< Shape of the gather's result.
  Shape result;         ///< Shape of the whole result.

  Array take_slice(const Array& x) const;
};

}  // namespace stow
