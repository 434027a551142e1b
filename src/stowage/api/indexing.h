// Axes and places of arrays, resolved: shared by the functions that take them.
// Not public; the functions are in shaping.h and at.h.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "stowage/api/shaping.h"
#include "stowage/base/inside.h"
#include "stowage/ir/params.h"

namespace stow {

/// The axes meant, in [0, rank) and in the order given; all of them, or none, where not given.
/// Errors: TraceError for one out of range or given twice.
Dims check_axes(std::string_view name, const Axes& axes, const ArrayType& type, bool all);

/// Negative indices from the end.
Array from_the_end(const Array& indices, int64_t extent);

/// Elements of x along one axis by indices of x's rank: each other axis goes along with that of the
/// indices, or is an axis of the window where all of it is indexed alike.
struct AlongAxis {
  AlongAxis(const Shape& x, const Shape& indices, int64_t axis);
  GatherParams params;
  Dims vectors;  ///< The shape of the indices as index vectors.
};

/// The value that IndexMode::kFill reads out of range.
ScalarValue out_of_range_value(DType dtype);

/// Index vectors moved so that the window of each lies wholly within x, which the parameters fit.
Array starts_within(const Array& indices, const Array& x, const GatherParams& p);
/// The result of gather by these index vectors, with `value` in each window that does not lie wholly
/// within x.
Array filled_outside(const Array& read, const Array& indices, const Array& x, const GatherParams& p,
                     const ScalarValue& value);

/// Elements `sources` of an axis, as slices that rise or fall, or one element repeated.
Array picked(const Array& x, int axis, const std::vector<int64_t>& sources);

/// x, changed by an elementwise function as often as `counts` says of each element; by a loop.
Array apply_counted(const Array& x, const Array& counts,
                    const std::function<Array(const Array&)>& function);

/// A list of Index resolved against an array: a slice of every axis, then elements by arrays, then
/// new axes. Errors: TraceError "[index] …".
struct Places {
  Places(const Array& x, std::span<const Index> indices);

  /// How the slice is taken: ranges with a positive step, then some axes reversed.
  SliceParams slice;
  Dims reversed;
  Shape cut;  ///< Shape of the slice; indexed axes are whole.
  bool has_arrays = false;
  GatherParams gather;  ///< Gather of the slice, if there are arrays.
  Array vectors;        ///< Index vectors for it, negative ones counted from the end.
  Shape read;           ///< The shape before new axes.
  Shape result;

  Array take_slice(const Array& x) const;
};

}  // namespace stow
