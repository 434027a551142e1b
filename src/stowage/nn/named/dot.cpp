#include "stowage/nn/named/dot.h"

#include <algorithm>

#include "stowage/api/linalg.h"
#include "stowage/api/reduce.h"
#include "stowage/api/trace.h"
#include "stowage/nn/named/access.h"
#include "stowage/nn/named/shape.h"

namespace stow::named {
namespace {

using AxisList = std::vector<Axis>;

// The axes of both, each where it first occurs.
AxisList union_of(const AxisList& a, const AxisList& b) {
  AxisList all = a;
  for (const Axis& axis : b)
    if (!find_axis(a, axis.name)) all.push_back(axis);
  return all;
}

void check_sizes(const AxisList& a, const AxisList& b) {
  for (const Axis& axis : b)
    if (const std::optional<size_t> place = find_axis(a, axis.name); place && a[*place] != axis)
      trace_error_here("[dot] axis '{}' has two sizes, in {} and in {}", axis.name, to_string(a),
                       to_string(b));
}

NamedArray sum_over(const NamedArray& x, const AxisList& axes) {
  if (axes.empty()) return x;
  return NamedAccess::make(stow::sum(x.array(), Axes(places_of(x, axes))),
                           without_axes(x.axes(), axes));
}

// One product, its axes where they first occur.
NamedArray product(const NamedArray& a, const NamedArray& b, const AxisList& contracted,
                   std::optional<DType> dtype) {
  AxisList both, batch, only_a, only_b;
  for (const Axis& axis : contracted) {
    const bool in_a = find_axis(a.axes(), axis.name).has_value();
    const bool in_b = find_axis(b.axes(), axis.name).has_value();
    (in_a && in_b ? both : in_a ? only_a : only_b).push_back(axis);
  }
  const NamedArray x = sum_over(a, only_a), y = sum_over(b, only_b);
  for (const Axis& axis : x.axes())
    if (find_axis(y.axes(), axis.name) && !find_axis(both, axis.name)) batch.push_back(axis);
  Array result = dot_general(x.array(), y.array(), places_of(x, both), places_of(y, both),
                             places_of(x, batch), places_of(y, batch), dtype);
  AxisList axes = batch;
  for (const NamedArray* operand : {&x, &y})
    for (const Axis& axis : operand->axes())
      if (!find_axis(both, axis.name) && !find_axis(batch, axis.name)) axes.push_back(axis);
  const NamedArray natural = NamedAccess::make(std::move(result), axes);
  const AxisList order = without_axes(union_of(x.axes(), y.axes()), both);
  return NamedAccess::make(aligned(natural, order), order);
}

}  // namespace

NamedArray dot(const std::vector<NamedArray>& operands, const AxisSelection& axes,
               const DotOptions& options, SourceLocation at) {
  const CallSiteScope site(at);
  if (operands.empty()) trace_error_here("[dot] expected at least one operand, got none");
  AxisList all;
  for (const NamedArray& x : operands) {
    check_axes_fit("dot", x);
    check_sizes(all, x.axes());
    all = union_of(all, x.axes());
  }
  AxisList contracted;
  if (!axes.given()) contracted = all;
  for (const AxisSelector& axis : axes.list()) {
    const std::optional<size_t> place = find_axis(all, axis.name());
    if (!place || (axis.size() && *axis.size() != all[*place].size))
      trace_error_here("[dot] no operand has axis '{}'{}; together they have {}", axis.name(),
                       axis.size() ? fmt::format(" of size {}", *axis.size()) : "", to_string(all));
    if (find_axis(contracted, axis.name()))
      trace_error_here("[dot] axis '{}' is given twice", axis.name());
    contracted.push_back(all[*place]);
  }
  const auto occurs_behind = [&](const Axis& axis, size_t i) {
    return std::any_of(operands.begin() + static_cast<std::ptrdiff_t>(i) + 1, operands.end(),
                       [&](const NamedArray& x) { return find_axis(x.axes(), axis.name); });
  };
  NamedArray result = operands[0];
  for (size_t i = 0; i < operands.size(); ++i) {
    AxisList now;
    for (const Axis& axis : contracted)
      if ((find_axis(result.axes(), axis.name) || find_axis(operands[i].axes(), axis.name)) &&
          !occurs_behind(axis, i))
        now.push_back(axis);
    const bool is_last = i + 1 == operands.size();
    if (i > 0)
      result = product(result, operands[i], now, is_last ? options.dtype : std::nullopt);
    else if (operands.size() == 1)
      result = sum_over(result, now);
  }
  return options.out_axes ? rearrange(result, *options.out_axes) : result;
}

NamedArray dot(const NamedArray& a, const NamedArray& b, const AxisSelection& axes,
               const DotOptions& options, SourceLocation at) {
  return dot(std::vector<NamedArray>{a, b}, axes, options, at);
}

}  // namespace stow::named
