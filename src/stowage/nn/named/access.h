// Shared by the sources of nn/named: axes checked, operands aligned by name.
// Not public; the functions are in the other headers of this folder.
#pragma once

#include <string>
#include <vector>

#include "stowage/nn/named/named_array.h"

namespace stow::named {

/// Sees whole NamedArrays where other visitors see their arrays alone.
struct NamedVisitor : TreeVisitor {
  virtual void named(NamedArray& x) = 0;
  void node(std::string_view, int64_t) override {}
};

/// The same, with the path of where it is.
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

/// Writes the parts of a NamedArray without a check, for transforms that take an axis away and give
/// it back.
struct NamedAccess {
  static void set_axes(NamedArray& x, std::vector<Axis> axes) { x.axes_ = std::move(axes); }
  static void set_array(NamedArray& x, Array array) { x.array_ = std::move(array); }
  static Array& array(NamedArray& x) { return x.array_; }
  /// One whose axes are known to fit.
  static NamedArray make(Array array, const std::vector<Axis>& axes) {
    NamedArray x;
    x.array_ = std::move(array);
    x.axes_ = axes;
    return x;
  }
};

/// Throws TraceError "[what] …" where x is empty, or its array and its axes do not agree, as when a
/// transform of plain arrays has taken an axis away.
void check_axes_fit(const char* what, const NamedArray& x);
/// Throws TraceError "[what] …" for a name that is empty, of other characters, or there twice, and
/// for a size below 0.
void check_axis_names(const char* what, const std::vector<Axis>& axes);

/// The place of an axis of x. Errors: TraceError "[what] …" that lists the axes.
size_t place_of(const char* what, const NamedArray& x, const AxisSelector& axis);
/// The axes selected, in order. Errors: as above; one given twice.
std::vector<Axis> select(const char* what, const NamedArray& x, const AxisSelection& axes);
/// Their places.
Dims places_of(const NamedArray& x, const std::vector<Axis>& axes);

/// The array of x with its axes in the order of `to`, which has all of them, and with extent 1
/// where x lacks one that stands behind one of its own: it broadcasts to `to` by NumPy's rule.
Array aligned(const NamedArray& x, const std::vector<Axis>& to);
/// The sizes.
Dims sizes_of(const std::vector<Axis>& axes);

}  // namespace stow::named
