// Elements, slices and updates of arrays by names of axes.
// Not masks; see where in named_array.h.
#pragma once

#include "stowage/api/at.h"
#include "stowage/nn/named/named_array.h"

namespace stow::named {

// Errors of all: TraceError that lists the axes where one is not there; for a C++ integer out of
// range.

/// One element of an axis, which is dropped; negative numbers count from the end.
NamedArray take(const NamedArray& x, const AxisSelector& axis, int64_t index, STOW_AT);
/// Elements of an axis, which the axes of `index` replace. Axes of `index` that x has as well go
/// along with those of x; then the axes that x lacks come first. Out of range as stow::take. Types:
/// index of an integer dtype. Source:  Haliax's take.
NamedArray take(const NamedArray& x, const AxisSelector& axis, const NamedArray& index, STOW_AT);
/// `new_axis.size` elements of an axis from `start` on; the axis gets the new name. A C++ integer
/// must lie so that all are there; a scalar array is clamped.
NamedArray slice(const NamedArray& x, const AxisSelector& axis, const Axis& new_axis,
                 const NamedOperand& start = 0);
/// x with `update` written over a slice of each of these axes that begins at `start`. The update's
/// axes have the names of those of x; axes of x that it lacks take it everywhere. A C++ integer
/// must lie so that the update fits; a scalar array is clamped.
NamedArray updated_slice(const NamedArray& x,
                         const std::vector<std::pair<std::string, NamedOperand>>& starts,
                         const NamedArray& update, STOW_AT);

/// The places of one axis: a number or an array of rank 0 (the axis is dropped), a range, or a
/// NamedArray of integers.
class NamedIndex {
 public:
  NamedIndex(int i) : of_(Index(i)) {}                                         // NOLINT: by design
  NamedIndex(int64_t i) : of_(Index(i)) {}                                     // NOLINT
  NamedIndex(Range r) : of_(Index(r)) {}                                       // NOLINT
  NamedIndex(NamedArray x) : of_(all_of_axis), array_(std::move(x)) {}         // NOLINT
  NamedIndex(const Array& x) : of_(all_of_axis), array_(NamedArray(x, {})) {}  // NOLINT
  const Index& plain() const { return of_; }                         ///< If it is no array.
  const std::optional<NamedArray>& array() const { return array_; }  ///< If it is one.

 private:
  Index of_;
  std::optional<NamedArray> array_;
};
/// Places of an array by names of axes: {{"Batch", 3}, {"Pos", range(0, 4)}}; other axes are whole.
using NamedIndices = std::vector<std::pair<std::string, NamedIndex>>;

/// The elements at these places. The axes of arrays among the indices, each where it first occurs,
/// stand where the first of the indexed axes did, or in front where an axis that is kept lies
/// between indexed ones. An axis that an index array has and x keeps goes along with it. Errors:
/// also TraceError for a range of an axis that an index array has. Source: Haliax's
/// NamedArray.__getitem__.
NamedArray index(const NamedArray& x, const NamedIndices& indices, STOW_AT);

/// Updates of what `index` would read, as values: at(x, {{"Pos", 3}}).set(0). A value's axes must
/// be among those that `index` gives. Out of range and repeated places: as AtIndex.
class NamedAt {
 public:
  using Mode = IndexMode;  ///< The treatment of places that are not there.
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
  std::vector<Index> indices_;  // one an axis of x
  std::vector<Axis> axes_;      // axes of the result of reading
  SourceLocation at_;
};
NamedAt at(const NamedArray& x, const NamedIndices& indices, STOW_AT);

}  // namespace stow::named
