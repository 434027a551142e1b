// Shape: the extents of an array, outermost first.
// Not a layout; the planner chooses strides.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace stow {

/// A list of integers that stands for axes, permutations or extents.
using Dims = std::vector<int64_t>;

/// The extents of an array. A scalar has rank 0 and one element.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : dims_(dims) {}  ///< From extents.
  explicit Shape(Dims dims) : dims_(std::move(dims)) {}  ///< From extents.

  int rank() const { return static_cast<int>(dims_.size()); }  ///< The number of axes.
  int64_t operator[](int axis) const { return dims_[static_cast<size_t>(axis)]; }  ///< An extent.
  int64_t& operator[](int axis) { return dims_[static_cast<size_t>(axis)]; }  ///< An extent.
  const Dims& dims() const { return dims_; }  ///< All extents.
  auto begin() const { return dims_.begin(); }  ///< First of the extents.
  auto end() const { return dims_.end(); }  ///< End of the extents.

  /// The number of elements.
  int64_t elems() const {
    int64_t n = 1;
    for (int64_t d : dims_) n *= d;
    return n;
  }
  friend bool operator==(const Shape&, const Shape&) = default;  ///< Extents and rank.

 private:
  Dims dims_;
};

/// "8,64"; empty for a scalar.
std::string to_string(const Shape& shape);

/// Row-major strides, in elements.
Dims contiguous_strides(const Shape& shape);

}  // namespace stow
