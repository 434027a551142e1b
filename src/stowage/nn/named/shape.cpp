#include "stowage/nn/named/shape.h"

#include <algorithm>

#include "stowage/api/math.h"
#include "stowage/api/nn.h"
#include "stowage/api/random.h"
#include "stowage/api/trace.h"
#include "stowage/nn/named/access.h"

namespace stow::named {
namespace {

Shape checked_shape(const char* what, const AxisSpec& axes) {
  check_axis_names(what, axes.list());
  return Shape(sizes_of(axes.list()));
}

// x in an order of its axes that may be its own.
NamedArray ordered(const NamedArray& x, const std::vector<Axis>& order) {
  return NamedAccess::make(aligned(x, order), order);
}

// The first array's axes for all of them, `axis` aside.
std::vector<Axis> order_like(const char* what, const NamedArray& first, const NamedArray& x,
                             const std::string& axis) {
  std::vector<Axis> order = first.axes(), own;
  for (Axis& a : order)
    if (a.name == axis)
      if (const std::optional<size_t> place = find_axis(x.axes(), axis)) a = x.axes()[*place];
  if (!same_axes(order, x.axes()))
    trace_error_here("[{}] the arrays have other axes than the first: {} there, {} here", what,
                     to_string(first.axes()), to_string(x.axes()));
  return order;
}

}  // namespace

NamedArray zeros(const AxisSpec& axes, DType dtype, SourceLocation at) {
  const CallSiteScope site(at);
  return NamedAccess::make(stow::zeros(checked_shape("zeros", axes), dtype), axes.list());
}

NamedArray ones(const AxisSpec& axes, DType dtype, SourceLocation at) {
  const CallSiteScope site(at);
  return NamedAccess::make(stow::ones(checked_shape("ones", axes), dtype), axes.list());
}

NamedArray full(const AxisSpec& axes, ScalarValue value, std::optional<DType> dtype,
                SourceLocation at) {
  const CallSiteScope site(at);
  return NamedAccess::make(stow::full(checked_shape("full", axes), value, dtype), axes.list());
}

NamedArray zeros_like(const NamedArray& x, SourceLocation at) {
  const CallSiteScope site(at);
  check_axes_fit("zeros_like", x);
  return NamedAccess::make(stow::zeros_like(x.array()), x.axes());
}

NamedArray ones_like(const NamedArray& x, SourceLocation at) {
  const CallSiteScope site(at);
  check_axes_fit("ones_like", x);
  return NamedAccess::make(stow::ones_like(x.array()), x.axes());
}

NamedArray arange(const Axis& axis, int64_t start, int64_t step, DType dtype, SourceLocation at) {
  const CallSiteScope site(at);
  check_axis_names("arange", {axis});
  Array counts = stow::iota(Shape{axis.size}, 0, dtype);
  if (step != 1) counts = counts * Array::scalar(ScalarValue(step), dtype);
  if (start != 0) counts = counts + Array::scalar(ScalarValue(start), dtype);
  return NamedAccess::make(std::move(counts), {axis});
}

NamedArray one_hot(const NamedArray& indices, const Axis& axis, DType dtype, SourceLocation at) {
  const CallSiteScope site(at);
  check_axes_fit("one_hot", indices);
  std::vector<Axis> axes = indices.axes();
  axes.push_back(axis);
  check_axis_names("one_hot", axes);
  return NamedAccess::make(stow::one_hot(indices.array(), axis.size, dtype), axes);
}

NamedArray rearrange(const NamedArray& x, const AxisSelection& order, SourceLocation at) {
  const CallSiteScope site(at);
  check_axes_fit("rearrange", x);
  if (!order.given()) return x;
  std::vector<Axis> named;
  std::optional<size_t> rest_at;
  for (const AxisSelector& axis : order.list()) {
    if (axis.name() == "...") {
      if (rest_at) trace_error_here("[rearrange] '...' is given twice");
      rest_at = named.size();
      continue;
    }
    const Axis& found = x.axes()[place_of("rearrange", x, axis)];
    if (find_axis(named, found.name))
      trace_error_here("[rearrange] axis '{}' is given twice", found.name);
    named.push_back(found);
  }
  const std::vector<Axis> rest = without_axes(x.axes(), named);
  if (!rest_at && !rest.empty())
    trace_error_here("[rearrange] {} of {} are not named; \"...\" stands for those not named",
                     to_string(rest), to_string(x.axes()));
  named.insert(named.begin() + static_cast<std::ptrdiff_t>(rest_at.value_or(0)), rest.begin(),
               rest.end());
  return ordered(x, named);
}

NamedArray rename(const NamedArray& x, const std::map<std::string, std::string>& names,
                  SourceLocation at) {
  const CallSiteScope site(at);
  check_axes_fit("rename", x);
  std::vector<Axis> axes = x.axes();
  for (const auto& [from, to] : names) axes[place_of("rename", x, from)].name = to;
  check_axis_names("rename", axes);
  return NamedAccess::make(x.array(), axes);
}

NamedArray broadcast_to(const NamedArray& x, const AxisSpec& axes, SourceLocation at) {
  const CallSiteScope site(at);
  check_axes_fit("broadcast_to", x);
  const Shape shape = checked_shape("broadcast_to", axes);
  for (const Axis& axis : x.axes()) {
    const std::optional<size_t> place = find_axis(axes.list(), axis.name);
    if (!place || axes.list()[*place] != axis)
      trace_error_here("[broadcast_to] axis {} of {} is not among {}", to_string(axis),
                       to_string(x.axes()), to_string(axes.list()));
  }
  return NamedAccess::make(stow::broadcast_to(aligned(x, axes.list()), shape), axes.list());
}

NamedArray broadcast_axis(const NamedArray& x, const AxisSpec& axes, SourceLocation at) {
  const CallSiteScope site(at);
  check_axes_fit("broadcast_axis", x);
  std::vector<Axis> all;
  for (const Axis& axis : axes.list()) {
    const std::optional<size_t> place = find_axis(x.axes(), axis.name);
    if (place && x.axes()[*place] != axis)
      trace_error_here("[broadcast_axis] axis '{}' has two sizes, in {} and in {}", axis.name,
                       to_string(x.axes()), to_string(axes.list()));
    if (!place) all.push_back(axis);
  }
  if (all.empty()) return x;
  all.insert(all.end(), x.axes().begin(), x.axes().end());
  return broadcast_to(x, all, at);
}

NamedArray flatten_axes(const NamedArray& x, const AxisSelection& axes, std::string new_axis,
                        SourceLocation at) {
  const CallSiteScope site(at);
  check_axes_fit("flatten_axes", x);
  const std::vector<Axis> old = select("flatten_axes", x, axes);
  const Axis flat{std::move(new_axis), total_size(old)};
  std::vector<Axis> order, result;
  if (old.empty()) result.push_back(flat);
  for (const Axis& axis : x.axes()) {
    if (!find_axis(old, axis.name)) {
      order.push_back(axis);
      result.push_back(axis);
    } else if (!find_axis(order, old[0].name)) {
      order.insert(order.end(), old.begin(), old.end());
      result.push_back(flat);
    }
  }
  check_axis_names("flatten_axes", result);
  return NamedAccess::make(reshape(aligned(x, order), sizes_of(result)), result);
}

NamedArray unflatten_axis(const NamedArray& x, const AxisSelector& axis, const AxisSpec& new_axes,
                          SourceLocation at) {
  const CallSiteScope site(at);
  check_axes_fit("unflatten_axis", x);
  check_axis_names("unflatten_axis", new_axes.list());
  const size_t place = place_of("unflatten_axis", x, axis);
  if (total_size(new_axes) != x.axes()[place].size)
    trace_error_here("[unflatten_axis] expected axes of {} elements for axis {}, got {} of {}",
                     x.axes()[place].size, to_string(x.axes()[place]), to_string(new_axes.list()),
                     total_size(new_axes));
  std::vector<Axis> axes = x.axes();
  const auto at_place = axes.erase(axes.begin() + static_cast<std::ptrdiff_t>(place));
  axes.insert(at_place, new_axes.list().begin(), new_axes.list().end());
  check_axis_names("unflatten_axis", axes);
  return NamedAccess::make(reshape(x.array(), sizes_of(axes)), axes);
}

std::vector<NamedArray> split(const NamedArray& x, const AxisSelector& axis,
                              const std::vector<Axis>& new_axes, SourceLocation at) {
  const CallSiteScope site(at);
  check_axes_fit("split", x);
  const size_t place = place_of("split", x, axis);
  int64_t total = 0;
  for (const Axis& part : new_axes) total += part.size;
  if (total != x.axes()[place].size)
    trace_error_here("[split] expected parts of {} elements in all for axis {}, got {}",
                     x.axes()[place].size, to_string(x.axes()[place]), to_string(new_axes));
  std::vector<NamedArray> parts;
  int64_t start = 0;
  for (const Axis& part : new_axes) {
    std::vector<Axis> axes = x.axes();
    axes[place] = part;
    check_axis_names("split", axes);
    parts.push_back(NamedAccess::make(
        x.array().slice(static_cast<int>(place), start, start + part.size), axes));
    start += part.size;
  }
  return parts;
}

std::vector<NamedArray> unbind(const NamedArray& x, const AxisSelector& axis, SourceLocation at) {
  const CallSiteScope site(at);
  check_axes_fit("unbind", x);
  const size_t place = place_of("unbind", x, axis);
  const std::vector<Axis> axes = without_axes(x.axes(), {x.axes()[place]});
  std::vector<NamedArray> slices;
  for (Array& slice : unstack(x.array(), static_cast<int>(place)))
    slices.push_back(NamedAccess::make(std::move(slice), axes));
  return slices;
}

NamedArray concatenate(const std::string& axis, const std::vector<NamedArray>& arrays,
                       SourceLocation at) {
  const CallSiteScope site(at);
  if (arrays.empty()) trace_error_here("[concatenate] expected at least one array, got none");
  for (const NamedArray& x : arrays) check_axes_fit("concatenate", x);
  const size_t place = place_of("concatenate", arrays[0], axis);
  std::vector<Axis> axes = arrays[0].axes();
  axes[place].size = 0;
  std::vector<Array> parts;
  for (const NamedArray& x : arrays) {
    parts.push_back(aligned(x, order_like("concatenate", arrays[0], x, axis)));
    axes[place].size += x.axes()[place_of("concatenate", x, axis)].size;
  }
  return NamedAccess::make(stow::concatenate(parts, static_cast<int>(place)), axes);
}

NamedArray stack(const std::string& axis, const std::vector<NamedArray>& arrays,
                 SourceLocation at) {
  const CallSiteScope site(at);
  if (arrays.empty()) trace_error_here("[stack] expected at least one array, got none");
  std::vector<Axis> axes{{axis, static_cast<int64_t>(arrays.size())}};
  axes.insert(axes.end(), arrays[0].axes().begin(), arrays[0].axes().end());
  check_axis_names("stack", axes);
  std::vector<Array> parts;
  for (const NamedArray& x : arrays) {
    check_axes_fit("stack", x);
    parts.push_back(aligned(x, order_like("stack", arrays[0], x, axis)));
  }
  return NamedAccess::make(stow::stack(parts), axes);
}

NamedArray roll(const NamedArray& x, int64_t shift, const AxisSelector& axis, SourceLocation at) {
  const CallSiteScope site(at);
  check_axes_fit("roll", x);
  const size_t place = place_of("roll", x, axis);
  return NamedAccess::make(stow::roll(x.array(), shift, static_cast<int>(place)), x.axes());
}

namespace random {

NamedArray normal(const Operand& key, const AxisSpec& axes, DType dtype) {
  const CallSiteScope site(key.at);
  return NamedAccess::make(stow::random::normal(key, checked_shape("normal", axes), dtype),
                           axes.list());
}

NamedArray truncated_normal(const Operand& key, double low, double high, const AxisSpec& axes,
                            DType dtype) {
  const CallSiteScope site(key.at);
  return NamedAccess::make(stow::random::truncated_normal(
                               key, low, high, checked_shape("truncated_normal", axes), dtype),
                           axes.list());
}

NamedArray uniform(const Operand& key, const AxisSpec& axes, DType dtype, double low, double high) {
  const CallSiteScope site(key.at);
  return NamedAccess::make(
      stow::random::uniform(key, checked_shape("uniform", axes), dtype, low, high), axes.list());
}

NamedArray randint(const Operand& key, const AxisSpec& axes, int64_t low, int64_t high,
                   DType dtype) {
  const CallSiteScope site(key.at);
  return NamedAccess::make(
      stow::random::randint(key, checked_shape("randint", axes), low, high, dtype), axes.list());
}

NamedArray bernoulli(const Operand& key, const AxisSpec& axes, const Operand& p) {
  const CallSiteScope site(key.at);
  return NamedAccess::make(stow::random::bernoulli(key, p, checked_shape("bernoulli", axes)),
                           axes.list());
}

}  // namespace random
}  // namespace stow::named
