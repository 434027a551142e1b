// x.at({...}).set(v), add, get, …: a copy of an array with some elements updated.
// Not assignment: x is unchanged. A compiled program updates in place if nothing else reads x.
#pragma once

#include <functional>

#include "stowage/api/shaping.h"
#include "stowage/ir/op_list.h"

namespace stow {

/// Selected elements of an array; made by Array::at. Values broadcast to the shape of
/// x.index({...}) and are converted to the dtype of the array. Every update returns the whole
/// updated array.
/// Out of range: negative indices count from the end first. An index of an index array that is then
/// out of range changes nothing under kFill (JAX's "drop"); IndexMode describes the other modes. A
/// C++ integer out of range is an error.
/// Repeated indices: updates apply in row-major order of the index arrays; the last `set` wins.
/// Gradients: an overwritten element or update has a zero gradient.
/// Errors: TraceError "[index] ..." for more indices than axes, a second ellipsis, a C++ integer
/// out of range, a range with step 0, or an index array that is not of integers. TraceError
/// "[at] ..." for a value that does not broadcast to the selected elements, `divide` of an array
/// that is no float, a `fill_value` in a mode other than kFill, or a function of `apply` that
/// changes the type.
class AtIndex {
 public:
  using Mode = IndexMode;  ///< The treatment of indices out of range.
  /// The selected elements, as x.index({...}). Indices out of range are clamped by default, as in
  /// JAX; kFill reads `fill_value` for them.
  Array get(Mode mode = Mode::kClip, const std::optional<ScalarValue>& fill_value = {}) const;
  Array set(const Operand& value, Mode mode = Mode::kFill) const;       ///< Replaces by `value`.
  Array add(const Operand& value, Mode mode = Mode::kFill) const;       ///< Adds `value`.
  Array subtract(const Operand& value, Mode mode = Mode::kFill) const;  ///< Subtracts `value`.
  Array multiply(const Operand& value, Mode mode = Mode::kFill) const;  ///< Multiplies by `value`.
  /// Divides by `value`; an element whose index is repeated is divided by the product of its
  /// values.
  Array divide(const Operand& value, Mode mode = Mode::kFill) const;
  /// Raises to the power `value`; for a repeated index, to the product of its values.
  Array power(const Operand& value, Mode mode = Mode::kFill) const;
  Array min(const Operand& value, Mode mode = Mode::kFill) const;  ///< Keeps the smaller of two.
  Array max(const Operand& value, Mode mode = Mode::kFill) const;  ///< Keeps the larger of two.
  /// Replaces each selected element e by function(e), once for each time that its index is
  /// repeated. `function` works element by element and keeps the type. With index arrays the update
  /// has no gradient, as in JAX; `function` is then called on the whole array, as many times as the
  /// most frequent index is repeated.
  Array apply(const std::function<Array(const Array&)>& function, Mode mode = Mode::kFill) const;

 private:
  friend class Array;
  AtIndex(Array array, std::vector<Index> indices, SourceLocation at)
      : array_(std::move(array)), indices_(std::move(indices)), at_(at) {}
  Array update(ir::OpKind op, const Operand& value, Mode mode, bool negate = false) const;

  Array array_;
  std::vector<Index> indices_;
  SourceLocation at_;
};

}  // namespace stow
