// NamedArray: an Array whose axes have names; elementwise functions match axes by name.
// Not a second kind of array: it is one leaf of a tree, and its functions call those of Array.
#pragma once

#include "stowage/api/tree.h"
#include "stowage/nn/named/axis.h"

namespace stow::named {

class NamedOperand;

/// An array with one Axis for each of its axes. In a tree it is one leaf, at its own path
/// ("layers/w"), and its axes are part of the tree's structure. Copying shares the array.
/// Source: Haliax's NamedArray.
class NamedArray {
 public:
  NamedArray() = default;  ///< Empty; must be assigned before use.
  /// `axes` are names, or axes whose sizes are checked.
  /// Errors: TraceError if their number is not the rank, a size differs, a name occurs twice, is
  ///         empty, or has characters other than letters, digits, '_', '-' and '.'.
  NamedArray(Array array, const AxisSelection& axes, STOW_AT);

  const Array& array() const { return array_; }                ///< Without names.
  const std::vector<Axis>& axes() const { return axes_; }      ///< In the order of the array.
  DType dtype() const { return array_.dtype(); }               ///< Dtype of its elements.
  int rank() const { return static_cast<int>(axes_.size()); }  ///< The number of axes.
  int64_t size() const { return array_.size(); }               ///< The number of elements.

  bool has_axis(const AxisSelector& axis) const;  ///< True if it has an axis of that name.
  /// Return the axis of that name, its index, and its size.
  /// Errors: TraceError that lists the axes if there is none, or if its size differs.
  Axis resolve_axis(const AxisSelector& axis, STOW_AT) const;
  int axis_index(const AxisSelector& axis, STOW_AT) const;
  int64_t axis_size(const AxisSelector& axis, STOW_AT) const;
  /// Returns the selected axes, in the order given. Errors: as resolve_axis; an axis given twice.
  std::vector<Axis> resolve_axes(const AxisSelection& axes, STOW_AT) const;

  /// Returns the array, which must have no axes; grad differentiates such a scalar. Errors:
  /// TraceError if there are axes.
  Array scalar(STOW_AT) const;
  /// The elements, as Array::to_vector.
  template <concepts::Scalar T>
  std::vector<T> to_vector(STOW_AT) const {
    return array_.to_vector<T>(at);
  }
  /// The only element, as Array::item.
  template <concepts::Scalar T>
  T item(STOW_AT) const {
    return array_.item<T>(at);
  }

  // Elementwise. The axes of one operand must be among those of the other. The result has the axes
  // of the operand with more axes, in its order, or of the first if both have the same axes.
  // Numbers and arrays of rank 0 combine with any operand. Types, values and errors are those of
  // the functions of Array with these names. Errors: also TraceError if neither operand's axes are
  // among the other's, naming both; and for an Array with axes, which have no names.
#define STOW_NAMED_OPERATOR(op) \
  friend NamedArray operator op(const NamedOperand& a, const NamedOperand& b);
#define STOW_NAMED_UNARY(f) friend NamedArray f(const NamedOperand& x);
#define STOW_NAMED_BINARY(f) friend NamedArray f(const NamedOperand& a, const NamedOperand& b);
#include "stowage/nn/named/elementwise_list.h"
#undef STOW_NAMED_OPERATOR
#undef STOW_NAMED_UNARY
#undef STOW_NAMED_BINARY
  friend NamedArray operator-(const NamedOperand& x);  ///< The negative.
  friend NamedArray operator~(const NamedOperand& x);  ///< The bitwise complement.
  /// Elements of `a` where `condition` is not zero, else of `b`.
  friend NamedArray where(const NamedOperand& condition, const NamedOperand& a,
                          const NamedOperand& b);
  /// minimum(maximum(x, low), high).
  friend NamedArray clip(const NamedOperand& x, const NamedOperand& low, const NamedOperand& high);

  // For trees.
  friend void stow_visit_leaf(NamedArray& x, TreeVisitor& visitor);

 private:
  friend struct NamedAccess;
  Array array_;
  std::vector<Axis> axes_;
};

NamedArray& operator+=(NamedArray& a, const NamedOperand& b);  ///< a = a + b.
NamedArray& operator-=(NamedArray& a, const NamedOperand& b);  ///< a = a - b.
NamedArray& operator*=(NamedArray& a, const NamedOperand& b);  ///< a = a * b.
NamedArray& operator/=(NamedArray& a, const NamedOperand& b);  ///< a = a / b.

/// An operand of an elementwise function: a NamedArray, a C++ number, or an Array of rank 0, with
/// the caller's source location.
class NamedOperand {
 public:
  NamedOperand(const NamedArray& x, const char* file = __builtin_FILE(),  // NOLINT: by design
               int line = __builtin_LINE())
      : at{file, line}, named_(x), value_(x.array(), file, line), is_named_(true) {}
  NamedOperand(const Array& x, const char* file = __builtin_FILE(),  // NOLINT
               int line = __builtin_LINE())
      : at{file, line}, value_(x, file, line) {}
  template <concepts::Scalar T>
  NamedOperand(T x, const char* file = __builtin_FILE(), int line = __builtin_LINE())  // NOLINT
      : at{file, line}, value_(x, file, line) {}

  bool is_named() const { return is_named_; }         ///< True if it is a NamedArray.
  const NamedArray& named() const { return named_; }  ///< The NamedArray; empty unless is_named().
  const Operand& value() const { return value_; }     ///< The operand without names.

  SourceLocation at;

 private:
  NamedArray named_;
  Operand value_;
  bool is_named_ = false;
};

/// Returns NamedArray(array, axes): named(x, {"Batch", "Embed"}).
NamedArray named(Array array, const AxisSelection& axes, STOW_AT);
/// Returns an array without data, for `lower` and for planning.
NamedArray abstract(const AxisSpec& axes, DType dtype = DType::kF32, STOW_AT);
/// Converts elements.
NamedArray astype(const NamedArray& x, DType dtype, STOW_AT);
/// Returns x, named for checkpoint policies.
NamedArray checkpoint_name(const NamedArray& x, std::string name, STOW_AT);
/// "f32{Batch: 4, Embed: 8}".
std::string to_string(const NamedArray& x);

}  // namespace stow::named
