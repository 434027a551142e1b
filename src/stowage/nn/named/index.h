// Elements, slices and updates of arrays by names of axes.
// Not masks; see where in named_array.h.
#pragma once

#include "stowage/api/at.h"
#include "stowage/nn/named/named_array.h"

namespace stow::named {

// Errors of all: TraceError for an axis that x lacks, listing those it has; for a C++ integer out
// of range.

/// Returns the elements at one index of an axis, which is dropped; negative indices count from the
/// end.
NamedArray take(const NamedArray& x, const AxisSelector& axis, int64_t index, STOW_AT);
/// Returns elements of an axis, which the axes of `index` replace. Axes that `index` and x share
/// are matched as batch axes; axes that x lacks then come first. Out of range: as stow::take.
/// Types:   index of an integer dtype.
/// Source:  Haliax's take.
NamedArray take(const NamedArray& x, const AxisSelector& axis, const NamedArray& index, STOW_AT);
/// Returns `new_axis.size` elements of an axis from `start` on; the axis gets the new name. The
/// slice must lie within the axis if `start` is a C++ integer; a scalar array is clamped.
NamedArray slice(const NamedArray& x, const AxisSelector& axis, const Axis& new_axis,
                 const NamedOperand& start = 0);
/// Returns x with `update` written over the slice that begins at `starts` along these axes. The
/// axes of `update` have names of axes of x; the update is repeated along axes of x that it lacks.
/// It must lie within x if a start is a C++ integer; a scalar array is clamped.
NamedArray updated_slice(const NamedArray& x,
                         const std::vector<std::pair<std::string, NamedOperand>>& starts,
                         const NamedArray& update, STOW_AT);

/// The index of one axis: a number or an array of rank 0 (the axis is dropped), a range, or a
/// NamedArray of integers.
class NamedIndex {
 public:
  NamedIndex(int i) : of_(Index(i)) {}                                         // NOLINT: by design
  NamedIndex(int64_t i) : of_(Index(i)) {}                                     // NOLINT
  NamedIndex(Range r) : of_(Index(r)) {}                                       // NOLINT
  NamedIndex(NamedArray x) : of_(all_of_axis), array_(std::move(x)) {}         // NOLINT
  NamedIndex(const Array& x) : of_(all_of_axis), array_(NamedArray(x, {})) {}  // NOLINT
  const Index& plain() const { return of_; }                         ///< A number or range.
  const std::optional<NamedArray>& array() const { return array_; }  ///< An array; else none.

 private:
  Index of_;
  std::optional<NamedArray> array_;
};
/// Indices by names of axes: {{"Batch", 3}, {"Pos", range(0, 4)}}; other axes are whole.
using NamedIndices = std::vector<std::pair<std::string, NamedIndex>>;

/// Returns the elements at these indices. The axes of index arrays, in order of first occurrence,
/// replace the indexed axes at the position of the first one, or come in front if a kept axis lies
/// between indexed ones. An axis that an index array shares with a kept axis of x is matched as a
/// batch axis.
/// Errors:  also TraceError for a range of an axis that an index array has.
/// Source:  Haliax's NamedArray.__getitem__.
NamedArray index(const NamedArray& x, const NamedIndices& indices, STOW_AT);

/// Functional updates of the elements that `index` would read: at(x, {{"Pos", 3}}).set(0). The axes
/// of a value must be among those that `index` returns. Out-of-range and repeated indices: as
/// AtIndex.
class NamedAt {
 public:
  using Mode = IndexMode;  ///< The treatment of indices out of range.
  NamedAt(NamedArray x, const NamedIndices& indices, SourceLocation at);
  NamedArray get(Mode mode = Mode::kClip) const;                                  ///< As index.
  NamedArray set(const NamedOperand& value, Mode mode = Mode::kFill) const;       ///< Writes.
  NamedArray add(const NamedOperand& value, Mode mode = Mode::kFill) const;       ///< Adds.
  NamedArray subtract(const NamedOperand& value, Mode mode = Mode::kFill) const;  ///< Subtracts.
  NamedArray multiply(const NamedOperand& value, Mode mode = Mode::kFill) const;  ///< Multiplies.
  NamedArray min(const NamedOperand& value, Mode mode = Mode::kFill) const;  ///< Keeps the smaller.
  NamedArray max(const NamedOperand& value, Mode mode = Mode::kFill) const;  ///< Keeps the larger.

 private:
  AtIndex places() const;
  Operand value_of(const NamedOperand& value) const;

  NamedArray x_;
  std::vector<Index> indices_;  // by axis of x
  std::vector<Axis> axes_;      // axes of the result of get()
  SourceLocation at_;
};
NamedAt at(const NamedArray& x, const NamedIndices& indices, STOW_AT);

}  // namespace stow::named
