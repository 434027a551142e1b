#include "stowage/nn/named/index.h"

#include <algorithm>

#include "stowage/api/math.h"
#include "stowage/api/trace.h"
#include "stowage/nn/named/access.h"
#include "stowage/nn/named/shape.h"

namespace stow::named {
namespace {

using AxisList = std::vector<Axis>;

// The array of x with one axis for each of `to`, of extent 1 where x has none.
Array expanded(const NamedArray& x, const AxisList& to) {
  Array array = aligned(x, to);
  Dims dims = array.shape().dims();
  dims.insert(dims.begin(), to.size() - dims.size(), 1);
  return static_cast<int>(to.size()) == array.rank() ? array : reshape(array, dims);
}

void check_integers(const char* what, const NamedArray& index) {
  check_axes_fit(what, index);
  if (!is_integer(index.dtype()))
    trace_error_here("[{}] expected indices of an integer dtype, got {}", what,
                     to_string(index.array().type()));
}

// The extent of a range of an axis, by NumPy's rule.
int64_t extent_of(const Range& range, int64_t n) {
  const auto clamped = [&](int64_t i, int64_t low, int64_t high) {
    return std::clamp(i < 0 ? i + n : i, low, high);
  };
  if (range.step > 0) {
    const int64_t start = clamped(range.start.value_or(0), 0, n);
    const int64_t stop = clamped(range.stop.value_or(n), 0, n);
    return std::max<int64_t>(0, (stop - start + range.step - 1) / range.step);
  }
  if (range.step == 0) return 0;  // the indexing refuses it
  const int64_t start = range.start ? clamped(*range.start, -1, n - 1) : n - 1;
  const int64_t stop = range.stop ? clamped(*range.stop, -1, n - 1) : -1;
  return std::max<int64_t>(0, (start - stop - range.step - 1) / -range.step);
}

bool is_whole(const Index& index) {
  return index.kind == Index::Kind::kRange && !index.range.start && !index.range.stop &&
         index.range.step == 1;
}

// The number of a start known now, and none of one that an array holds.
std::optional<int64_t> known(const NamedOperand& start) {
  if (start.value().is_scalar()) return start.value().scalar().integer;
  return std::nullopt;
}

Array start_array(const char* what, const NamedOperand& start) {
  if (start.value().is_scalar()) return Array::scalar(start.value().scalar());
  if (start.value().rank() != 0 || !is_integer(start.value().array().dtype()))
    trace_error_here("[{}] expected a start that is an integer scalar, got {}", what,
                     to_string(start.value().array().type()));
  return start.value().array();
}

// Calls f with the indices as the list in braces that Array::index takes.
template <typename F>
auto with_list(const std::vector<Index>& indices, F f) {
  const auto call = [&]<size_t... I>(std::index_sequence<I...>) {
    return f({indices[I]...});
  };
  switch (indices.size()) {
    case 1:
      return call(std::make_index_sequence<1>());
    case 2:
      return call(std::make_index_sequence<2>());
    case 3:
      return call(std::make_index_sequence<3>());
    case 4:
      return call(std::make_index_sequence<4>());
    case 5:
      return call(std::make_index_sequence<5>());
    case 6:
      return call(std::make_index_sequence<6>());
    case 7:
      return call(std::make_index_sequence<7>());
    case 8:
      return call(std::make_index_sequence<8>());
    default:
      trace_error_here("[index] expected an array of 1 to 8 axes, got {}", indices.size());
  }
}

}  // namespace

NamedArray take(const NamedArray& x, const AxisSelector& axis, int64_t index, SourceLocation at) {
  const CallSiteScope site(at);
  check_axes_fit("take", x);
  const size_t place = place_of("take", x, axis);
  const Axis& taken = x.axes()[place];
  if (index < -taken.size || index >= taken.size)
    trace_error_here("[take] element {} is out of range for axis {} of {}", index, to_string(taken),
                     to_string(x.axes()));
  const int64_t i = index < 0 ? index + taken.size : index;
  const Array one = x.array().slice(static_cast<int>(place), i, i + 1);
  return NamedAccess::make(squeeze(one, static_cast<int>(place)), without_axes(x.axes(), {taken}));
}

NamedArray take(const NamedArray& x, const AxisSelector& axis, const NamedArray& index,
                SourceLocation at) {
  const CallSiteScope site(at);
  check_axes_fit("take", x);
  check_integers("take", index);
  const size_t place = place_of("take", x, axis);
  const Axis taken = x.axes()[place];
  const AxisList rest = without_axes(x.axes(), {taken});
  const bool overlaps = std::any_of(index.axes().begin(), index.axes().end(), [&](const Axis& a) {
    return find_axis(rest, a.name).has_value();
  });
  if (!overlaps) {
    AxisList axes = x.axes();
    const auto at_place = axes.erase(axes.begin() + static_cast<std::ptrdiff_t>(place));
    axes.insert(at_place, index.axes().begin(), index.axes().end());
    return NamedAccess::make(stow::take(x.array(), index.array(), static_cast<int>(place)), axes);
  }
  // Axes that both have go along, so the index is read element by element. Its own axis of the
  // taken axis's name is another one until the end.
  const std::string stand_in = taken.name + "/index";
  AxisList index_axes = index.axes();
  for (Axis& a : index_axes) {
    if (a.name == taken.name) a.name = stand_in;
    if (const auto p = find_axis(rest, a.name); p && rest[*p] != a)
      trace_error_here("[take] axis '{}' has two sizes, in {} and in {}", a.name,
                       to_string(x.axes()), to_string(index.axes()));
  }
  AxisList all = without_axes(index_axes, x.axes());
  all.insert(all.end(), x.axes().begin(), x.axes().end());
  const size_t at_axis = *find_axis(all, taken.name);
  AxisList result = all;
  result.erase(result.begin() + static_cast<std::ptrdiff_t>(at_axis));
  const Array indices = expand_dims(expanded(NamedAccess::make(index.array(), index_axes), result),
                                    static_cast<int>(at_axis));
  const Array read = take_along_axis(expanded(x, all), indices, static_cast<int>(at_axis));
  for (Axis& a : result)
    if (a.name == stand_in) a.name = taken.name;
  return NamedAccess::make(squeeze(read, static_cast<int>(at_axis)), result);
}

NamedArray slice(const NamedArray& x, const AxisSelector& axis, const Axis& new_axis,
                 const NamedOperand& start) {
  const CallSiteScope site(start.at);
  check_axes_fit("slice", x);
  const size_t place = place_of("slice", x, axis);
  AxisList axes = x.axes();
  axes[place] = new_axis;
  check_axis_names("slice", axes);
  const int64_t n = x.axes()[place].size;
  if (new_axis.size > n)
    trace_error_here("[slice] expected at most {} elements of axis {}, got {}", n,
                     to_string(x.axes()[place]), to_string(new_axis));
  if (const std::optional<int64_t> first = known(start)) {
    if (*first < 0 || *first + new_axis.size > n)
      trace_error_here("[slice] elements {} to {} are out of range for axis {}", *first,
                       *first + new_axis.size - 1, to_string(x.axes()[place]));
    return NamedAccess::make(
        x.array().slice(static_cast<int>(place), *first, *first + new_axis.size), axes);
  }
  std::vector<Array> starts(x.axes().size(), Array(0));
  starts[place] = start_array("slice", start);
  return NamedAccess::make(dynamic_slice(x.array(), starts, sizes_of(axes)), axes);
}

NamedArray updated_slice(const NamedArray& x,
                         const std::vector<std::pair<std::string, NamedOperand>>& starts,
                         const NamedArray& update, SourceLocation at) {
  const CallSiteScope site(at);
  check_axes_fit("updated_slice", x);
  check_axes_fit("updated_slice", update);
  AxisList axes = x.axes();
  for (const Axis& axis : update.axes()) {
    const size_t place = place_of("updated_slice", x, axis.name);
    if (axis.size > axes[place].size)
      trace_error_here(
          "[updated_slice] the update has more elements of axis '{}' than the array: {} and {}",
          axis.name, to_string(update.axes()), to_string(x.axes()));
    axes[place] = axis;
  }
  std::vector<Array> begin(axes.size(), Array(0));
  for (const auto& [name, start] : starts) {
    const size_t place = place_of("updated_slice", x, name);
    // An axis that the update lacks is one element wide where a start is given.
    if (!find_axis(update.axes(), name)) axes[place].size = 1;
    if (const std::optional<int64_t> first = known(start);
        first && (*first < 0 || *first + axes[place].size > x.axes()[place].size))
      trace_error_here("[updated_slice] elements {} to {} are out of range for axis {}", *first,
                       *first + axes[place].size - 1, to_string(x.axes()[place]));
    begin[place] = start_array("updated_slice", start);
  }
  const Array values = stow::broadcast_to(expanded(update, axes), Shape(sizes_of(axes)));
  return NamedAccess::make(dynamic_update_slice(x.array(), stow::astype(values, x.dtype()), begin),
                           x.axes());
}

NamedAt::NamedAt(NamedArray x, const NamedIndices& indices, SourceLocation at)
    : x_(std::move(x)), indices_(x_.axes().size(), all_of_axis), at_(at) {
  const CallSiteScope site(at);
  check_axes_fit("index", x_);
  std::vector<std::optional<NamedArray>> arrays(indices_.size());
  std::vector<bool> is_given(indices_.size());
  AxisList joint;  // of the arrays
  for (const auto& [name, given] : indices) {
    const size_t place = place_of("index", x_, name);
    if (is_given[place]) trace_error_here("[index] axis '{}' is given twice", name);
    is_given[place] = true;
    if (given.array()) {
      check_integers("index", *given.array());
      arrays[place] = given.array();
    } else {
      indices_[place] = given.plain();
    }
  }
  bool has_arrays = false;
  for (const auto& array : arrays) {
    if (!array) continue;
    has_arrays = true;
    for (const Axis& axis : array->axes()) {
      const std::optional<size_t> place = find_axis(joint, axis.name);
      if (place && joint[*place] != axis)
        trace_error_here("[index] axis '{}' of index arrays has two sizes, {} and {}", axis.name,
                         joint[*place].size, axis.size);
      if (!place) joint.push_back(axis);
    }
  }
  // A kept axis that index arrays have is read element by element, along with them.
  for (size_t i = 0; i < indices_.size(); ++i) {
    const Axis& axis = x_.axes()[i];
    const std::optional<size_t> place = find_axis(joint, axis.name);
    if (!place || arrays[i] || indices_[i].kind == Index::Kind::kInteger) continue;
    if (!is_whole(indices_[i]) || joint[*place] != axis)
      trace_error_here(
          "[index] axis '{}' of an index array is also a range of {}; rename it in the index, "
          "or take the range first",
          axis.name, to_string(x_.axes()));
    arrays[i] = arange(axis);
  }
  std::optional<size_t> first, last;
  size_t n_advanced = 0;
  for (size_t i = 0; i < indices_.size(); ++i) {
    if (arrays[i]) indices_[i] = Index(aligned(*arrays[i], joint));
    if (!has_arrays || !(arrays[i] || indices_[i].kind == Index::Kind::kInteger)) continue;
    if (!first) first = i;
    last = i;
    ++n_advanced;
  }
  const bool in_front = first && *last - *first + 1 != n_advanced;
  if (in_front) axes_ = joint;
  for (size_t i = 0; i < indices_.size(); ++i) {
    if (first && i == *first && !in_front) axes_.insert(axes_.end(), joint.begin(), joint.end());
    if (indices_[i].kind != Index::Kind::kRange) continue;
    const Axis& axis = x_.axes()[i];
    axes_.push_back({axis.name, extent_of(indices_[i].range, axis.size)});
  }
  check_axis_names("index", axes_);
}

AtIndex NamedAt::places() const {
  return with_list(indices_,
                   [&](std::initializer_list<Index> list) { return x_.array().at(list, at_); });
}

Operand NamedAt::value_of(const NamedOperand& value) const {
  if (!value.is_named()) {
    if (value.value().rank() > 0)
      trace_error_here("[at] expected a NamedArray or a scalar, got {} without names",
                       to_string(value.value().array().type()));
    return value.value();
  }
  check_axes_fit("at", value.named());
  for (const Axis& axis : value.named().axes()) {
    const std::optional<size_t> place = find_axis(axes_, axis.name);
    if (!place || axes_[*place] != axis)
      trace_error_here("[at] expected a value with axes of {}, got {}", to_string(axes_),
                       to_string(value.named().axes()));
  }
  return Operand(aligned(value.named(), axes_), value.at.file, value.at.line);
}

NamedArray NamedAt::get(Mode mode) const {
  const CallSiteScope site(at_);
  if (indices_.empty()) return x_;
  return NamedAccess::make(places().get(mode), axes_);
}

#define STOW_NAMED_UPDATE(f)                                                \
  NamedArray NamedAt::f(const NamedOperand& value, Mode mode) const {       \
    const CallSiteScope site(at_);                                                   \
    return NamedAccess::make(places().f(value_of(value), mode), x_.axes()); \
  }
STOW_NAMED_UPDATE(set)
STOW_NAMED_UPDATE(add)
STOW_NAMED_UPDATE(subtract)
STOW_NAMED_UPDATE(multiply)
STOW_NAMED_UPDATE(min)
STOW_NAMED_UPDATE(max)
#undef STOW_NAMED_UPDATE

NamedArray index(const NamedArray& x, const NamedIndices& indices, SourceLocation at) {
  return NamedAt(x, indices, at).get();
}

NamedAt at(const NamedArray& x, const NamedIndices& indices, SourceLocation at) {
  return NamedAt(x, indices, at);
}

}  // namespace stow::named
