// x.at({...}).set(v) and its like: an array with some places changed, as a value.
// Not assignment: x stays as it is; a program updates in place where nothing else reads x.
#pragma once

#include <functional>

#include "stowage/api/shaping.h"
#include "stowage/ir/op_list.h"

namespace stow {

/// Places of an array, by Array::at. Values broadcast to the shape that `index` would give and take
/// the dtype of the array.
/// Out of range: numbers of an index array that are out of range, once negative ones have been
/// counted from the end, change nothing (kFill, which JAX also calls "drop"), or count as `mode`
/// says; a C++ integer out of range is an error.
/// Repeated places: each update counts, in row-major order of the index arrays; the last of `set`
/// wins. Gradients: an element that was overwritten gets none, nor an update that was.
/// Errors: TraceError "[index] ..." or "[at] ...".
class AtIndex {
 public:
  using Mode = IndexMode;  ///< The treatment of places that are not there.
  /// The elements that `index` reads; out of range as `mode` says, by default kClip as in JAX. kFill reads
  /// `fill_value` there.
  Array get(Mode mode = Mode::kClip, const std::optional<ScalarValue>& fill_value = {}) const;
  Array set(const Operand& value, Mode mode = Mode::kFill) const;       ///< Writes.
  Array add(const Operand& value, Mode mode = Mode::kFill) const;       ///< Adds.
  Array subtract(const Operand& value, Mode mode = Mode::kFill) const;  ///< Subtracts.
  Array multiply(const Operand& value, Mode mode = Mode::kFill) const;  ///< Multiplies.
  /// Divides; repeated places are divided by the product.
  Array divide(const Operand& value, Mode mode = Mode::kFill) const;
  /// To the power; of repeated places to the product.
  Array power(const Operand& value, Mode mode = Mode::kFill) const;
  Array min(const Operand& value, Mode mode = Mode::kFill) const;  ///< Keeps the smaller.
  Array max(const Operand& value, Mode mode = Mode::kFill) const;  ///< Keeps the larger.
  /// Replaces what is there by `function` of it, which works element by element and keeps the type;
  /// at repeated places as often as they are repeated. With arrays of integers it has no gradient,
  /// as in JAX. There `function` sees all of the array, as often as the most repeated place says.
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
