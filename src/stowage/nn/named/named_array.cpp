#include "stowage/nn/named/named_array.h"

#include <algorithm>
#include <cctype>

#include "stowage/api/checkpoint.h"
#include "stowage/api/math.h"
#include "stowage/api/shaping.h"
#include "stowage/api/trace.h"
#include "stowage/nn/named/access.h"

namespace stow::named {
namespace {

bool is_valid_name(const std::string& name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '-' || c == '.';
  });
}

}  // namespace

void check_axis_names(const char* what, const std::vector<Axis>& axes) {
  for (size_t i = 0; i < axes.size(); ++i) {
    if (!is_valid_name(axes[i].name))
      trace_error_here(
          "[{}] expected a name of letters, digits, '_', '-' and '.', got '{}' for axis {}", what,
          axes[i].name, i);
    if (axes[i].size < 0)
      trace_error_here("[{}] expected a size of at least 0, got {} for axis '{}'", what,
                       axes[i].size, axes[i].name);
    for (size_t j = 0; j < i; ++j)
      if (axes[j].name == axes[i].name)
        trace_error_here("[{}] axis '{}' is there twice in {}; rename one", what, axes[i].name,
                         to_string(axes));
  }
}

void check_axes_fit(const char* what, const NamedArray& x) {
  if (x.array().empty())
    trace_error_here("[{}] the NamedArray is empty: it was never given an array", what);
  if (x.array().shape().dims() != sizes_of(x.axes()))
    trace_error_here(
        "[{}] a NamedArray of {} holds {}: a transform of plain arrays took an axis away; use "
        "named::scan, named::fold or named::vmap",
        what, to_string(x.axes()), to_string(x.array().type()));
}

Dims sizes_of(const std::vector<Axis>& axes) {
  Dims sizes;
  for (const Axis& axis : axes) sizes.push_back(axis.size);
  return sizes;
}

size_t place_of(const char* what, const NamedArray& x, const AxisSelector& axis) {
  const std::optional<size_t> place = find_axis(x.axes(), axis.name());
  if (!place)
    trace_error_here("[{}] there is no axis '{}' in {}", what, axis.name(), to_string(x.axes()));
  if (axis.size() && *axis.size() != x.axes()[*place].size)
    trace_error_here("[{}] expected axis '{}' of size {}, got {}", what, axis.name(), *axis.size(),
                     to_string(x.axes()));
  return *place;
}

std::vector<Axis> select(const char* what, const NamedArray& x, const AxisSelection& axes) {
  if (!axes.given()) return x.axes();
  std::vector<Axis> selected;
  for (const AxisSelector& axis : axes.list()) {
    const Axis& found = x.axes()[place_of(what, x, axis)];
    if (find_axis(selected, found.name))
      trace_error_here("[{}] axis '{}' is given twice", what, found.name);
    selected.push_back(found);
  }
  return selected;
}

Dims places_of(const NamedArray& x, const std::vector<Axis>& axes) {
  Dims places;
  for (const Axis& axis : axes)
    places.push_back(static_cast<int64_t>(*find_axis(x.axes(), axis.name)));
  return places;
}

Array aligned(const NamedArray& x, const std::vector<Axis>& to) {
  Dims order, dims;
  for (const Axis& axis : to) {
    const std::optional<size_t> place = find_axis(x.axes(), axis.name);
    if (place) order.push_back(static_cast<int64_t>(*place));
    // Extents of 1 in front of all axes of x are not needed.
    if (place || !dims.empty()) dims.push_back(place ? axis.size : 1);
  }
  Array array = x.array();
  if (!std::is_sorted(order.begin(), order.end())) array = transpose(array, Axes(order));
  return dims.size() == order.size() ? array : reshape(array, dims);
}

NamedArray::NamedArray(Array array, const AxisSelection& axes, SourceLocation at)
    : array_(std::move(array)) {
  const CallSiteScope site(at);
  if (array_.empty()) trace_error_here("[named] the array is empty: it was never given a value");
  const ArrayType& type = array_.type();
  if (!axes.given() && type.shape.rank() > 0)
    trace_error_here("[named] {} has {} axes; name each of them", to_string(type),
                     type.shape.rank());
  if (static_cast<int>(axes.list().size()) != type.shape.rank()) {
    std::string names;
    for (const AxisSelector& axis : axes.list()) names += (names.empty() ? "" : ", ") + axis.name();
    trace_error_here("[named] expected {} names, one for each axis of {}, got {}: {{{}}}",
                     type.shape.rank(), to_string(type), axes.list().size(), names);
  }
  for (size_t i = 0; i < axes.list().size(); ++i) {
    const AxisSelector& axis = axes.list()[i];
    const int64_t extent = type.shape[static_cast<int>(i)];
    if (axis.size() && *axis.size() != extent)
      trace_error_here("[named] expected axis '{}' of size {}, got {} whose axis {} has {}",
                       axis.name(), *axis.size(), to_string(type), i, extent);
    axes_.push_back({axis.name(), extent});
  }
  check_axis_names("named", axes_);
}

bool NamedArray::has_axis(const AxisSelector& axis) const {
  const std::optional<size_t> place = find_axis(axes_, axis.name());
  return place && (!axis.size() || *axis.size() == axes_[*place].size);
}

Axis NamedArray::resolve_axis(const AxisSelector& axis, SourceLocation at) const {
  const CallSiteScope site(at);
  return axes_[place_of("resolve_axis", *this, axis)];
}

int NamedArray::axis_index(const AxisSelector& axis, SourceLocation at) const {
  const CallSiteScope site(at);
  return static_cast<int>(place_of("axis_index", *this, axis));
}

int64_t NamedArray::axis_size(const AxisSelector& axis, SourceLocation at) const {
  const CallSiteScope site(at);
  return axes_[place_of("axis_size", *this, axis)].size;
}

std::vector<Axis> NamedArray::resolve_axes(const AxisSelection& axes, SourceLocation at) const {
  const CallSiteScope site(at);
  return select("resolve_axes", *this, axes);
}

Array NamedArray::scalar(SourceLocation at) const {
  const CallSiteScope site(at);
  check_axes_fit("scalar", *this);
  if (!axes_.empty())
    trace_error_here("[scalar] expected no axes, got {}; sum or take them first", to_string(axes_));
  return array_;
}

void stow_visit_leaf(NamedArray& x, TreeVisitor& visitor) {
  if (auto* visits_named = dynamic_cast<NamedVisitor*>(&visitor)) {
    visits_named->named(x);
    return;
  }
  visitor.node("a NamedArray of " + to_string(x.axes_), -1);
  visitor.leaf(x.array_);
}

NamedArray named(Array array, const AxisSelection& axes, SourceLocation at) {
  return NamedArray(std::move(array), axes, at);
}

NamedArray abstract(const AxisSpec& axes, DType dtype, SourceLocation at) {
  const CallSiteScope site(at);
  check_axis_names("abstract", axes.list());
  return NamedAccess::make(Array::abstract(Shape(sizes_of(axes.list())), dtype), axes.list());
}

NamedArray astype(const NamedArray& x, DType dtype, SourceLocation at) {
  const CallSiteScope site(at);
  check_axes_fit("astype", x);
  return NamedAccess::make(stow::astype(x.array(), dtype), x.axes());
}

NamedArray checkpoint_name(const NamedArray& x, std::string name, SourceLocation at) {
  const CallSiteScope site(at);
  check_axes_fit("checkpoint_name", x);
  return NamedAccess::make(stow::checkpoint_name(x.array(), std::move(name)), x.axes());
}

std::string to_string(const NamedArray& x) {
  return x.array().empty() ? "an empty NamedArray"
                           : fmt::format("{}{}", dtype_name(x.dtype()), to_string(x.axes()));
}

}  // namespace stow::named
