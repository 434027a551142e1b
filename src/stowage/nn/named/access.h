// Helpers of the sources of nn/named: checks of axes, alignment of operands by name.
// Not public; the public functions are in the other headers of this folder.
#pragma once

#include <string>
#include <vector>

#include "stowage/nn/named/named_array.h"

namespace stow::named {

/// A TreeVisitor that receives whole NamedArrays; other visitors receive only their arrays.
struct NamedVisitor : TreeVisitor {
  virtual void named(NamedArray& x) = 0;
  void node(std::string_view, int64_t) override {}
};

/// A NamedVisitor that knows the path of the current leaf.
struct PathNamedVisitor : NamedVisitor {
  std::string path;
  void enter(std::string_view name) override {
    lengths_.push_back(path.size());
    if (!path.empty()) path += '/';
    path += name;
  }
  void leave() override {
    path.resize(lengths_.back());
    lengths_.pop_back();
  }

 private:
  std::vector<size_t> lengths_;
};

/// Writes the parts of a NamedArray without a check, for transforms that remove an axis and add it
/// back.
struct NamedAccess {
  static void set_axes(NamedArray& x, std::vector<Axis> axes) { x.axes_ = std::move(axes); }
  static void set_array(NamedArray& x, Array array) { x.array_ = std::move(array); }
  static Array& array(NamedArray& x) { return x.array_; }
  /// Makes a NamedArray from an array and axes that are known to fit.
  static NamedArray make(Array array, const std::vector<Axis>& axes) {
    NamedArray x;
    x.array_ = std::move(array);
    x.axes_ = axes;
    return x;
  }
};

/// Throws TraceError "[what] …" if x is empty, or if its array and its axes do not agree, for
/// example after a transform of plain arrays has removed an axis.
void check_axes_fit(const char* what, const NamedArray& x);
/// Throws TraceError "[what] …" for a name that is empty, has invalid characters or occurs twice,
/// and for a negative size.
void check_axis_names(const char* what, const std::vector<Axis>& axes);

/// Returns the index of an axis of x. Errors: TraceError "[what] …" that lists the axes.
size_t place_of(const char* what, const NamedArray& x, const AxisSelector& axis);
/// Returns the selected axes, in order. Errors: as place_of; an axis given twice.
std::vector<Axis> select(const char* what, const NamedArray& x, const AxisSelection& axes);
/// Returns the indices of axes of x.
Dims places_of(const NamedArray& x, const std::vector<Axis>& axes);

/// Returns the array of x in a form that broadcasts to the axes `to` by NumPy's rule: its axes are
/// in the order of `to`, which has all of them, with extent 1 for axes of `to` that x lacks.
Array aligned(const NamedArray& x, const std::vector<Axis>& to);
/// Returns the sizes of axes.
Dims sizes_of(const std::vector<Axis>& axes);

}  // namespace stow::named
