#include "stowage/api/convolution.h"

#include <algorithm>

#include "stowage/api/math.h"
#include "stowage/api/math_internal.h"

namespace stow {
namespace {

Dims or_ones(const Dims& list, size_t n) {
  return list.empty() ? Dims(n, 1) : list;
}

// n elements with dilation - 1 holes between neighbours.
Dims dilated(const Dims& extents, const Dims& dilation) {
  Dims result;
  for (size_t i = 0; i < extents.size(); ++i)
    result.push_back(extents[i] == 0 ? 0 : (extents[i] - 1) * dilation[i] + 1);
  return result;
}

void check_lengths(std::string_view name,
                   std::initializer_list<std::pair<const Dims*, const char*>> lists, size_t n) {
  for (const auto& [list, what] : lists)
    if (list->size() != n)
      trace_error_here("[{}] expected an entry of {} for each axis, got {} for {}", name, what,
                       list->size(), n);
}

// Axes of `type` in the order: the first letter, the second, then the spatial letters as given.
Dims order_of(const std::string& axes, const std::string& leading, const std::string& spatial,
              const ArrayType& type) {
  Dims order;
  for (const char letter : leading + spatial) {
    const size_t at = axes.find(letter);
    if (at == axes.npos || static_cast<int>(axes.size()) != type.shape.rank())
      trace_error_here(
          "[conv_general_dilated] axes \"{}\" of {} must be {} and one letter of \"{}\" each", axes,
          to_string(type), leading, spatial);
    order.push_back(static_cast<int64_t>(at));
  }
  return order;
}

std::string without(const std::string& axes, const std::string& letters) {
  std::string rest;
  for (const char c : axes)
    if (letters.find(c) == letters.npos) rest.push_back(c);
  return rest;
}

// The letters of each operand's axes. Strides and their like are in the order of the kernel's
// spatial axes, as in JAX; where its letters are not given, in that of the others.
struct Letters {
  std::string lhs, rhs, out, spatial;
};
Letters letters_of(const ConvOptions& options, size_t n) {
  std::string spatial;
  if (!options.rhs_axes.empty()) {
    spatial = without(options.rhs_axes, "OI");
  } else if (!options.lhs_axes.empty() || !options.out_axes.empty()) {
    spatial = without(options.lhs_axes.empty() ? options.out_axes : options.lhs_axes, "NC");
  } else {
    for (size_t i = 0; i < n; ++i) spatial.push_back(static_cast<char>('0' + i));
  }
  const auto given_or = [&](const std::string& given, const char* leading) {
    return given.empty() ? leading + spatial : given;
  };
  return {given_or(options.lhs_axes, "NC"), given_or(options.rhs_axes, "OI"),
          given_or(options.out_axes, "NC"), spatial};
}

Dims spatial_of(const Array& x) {
  return Dims(x.shape().begin() + 2, x.shape().end());
}

Array window_op(OpKind op, const char* name, const Operand& x, const Dims& window,
                const WindowOptions& options) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  const auto n = static_cast<size_t>(a.rank());
  WindowParams p;
  p.sizes = window;
  p.strides = or_ones(options.strides, n);
  p.base_dilation = or_ones(options.base_dilation, n);
  p.window_dilation = or_ones(options.window_dilation, n);
  check_lengths(name,
                {{&p.sizes, "the window"},
                 {&p.strides, "strides"},
                 {&p.base_dilation, "base_dilation"},
                 {&p.window_dilation, "window_dilation"}},
                n);
  for (const PadWidth& w : options.padding.widths(name, a.shape().dims(),
                                                  dilated(p.sizes, p.window_dilation), p.strides)) {
    p.low.push_back(w.before);
    p.high.push_back(w.after);
  }
  return record1(op, p, {a});
}

// A window over the axes between the first and the last, and what slides it.
struct Pool {
  Dims window;
  WindowOptions options;
};
Pool pool_of(const char* name, const Array& x, const Dims& window, const Dims& strides,
             const Padding& padding) {
  if (x.rank() != static_cast<int>(window.size()) + 2)
    trace_error_here("[{}] expected [N, S..., C] with {} axes S, as the window has, got {}", name,
                     window.size(), to_string(x.type()));
  const Dims steps = or_ones(strides, window.size());
  check_lengths(name, {{&steps, "strides"}}, window.size());
  const Dims extents(x.shape().begin() + 1, x.shape().end() - 1);
  std::vector<PadWidth> widths = padding.widths(name, extents, window, steps);
  widths.insert(widths.begin(), PadWidth{});
  widths.push_back({});
  Pool pool{window, {.strides = steps, .padding = widths}};
  for (Dims* list : {&pool.window, &pool.options.strides}) {
    list->insert(list->begin(), 1);
    list->push_back(1);
  }
  return pool;
}

}  // namespace

std::vector<PadWidth> Padding::widths(std::string_view function, const Dims& extents,
                                      const Dims& windows, const Dims& strides) const {
  if (rule_.empty() && widths_.size() == extents.size()) return widths_;
  if (rule_.empty())
    trace_error_here("[{}] expected an entry of padding for each axis, got {} for {}", function,
                     widths_.size(), extents.size());
  std::vector<PadWidth> result(extents.size());
  if (rule_ == "VALID") return result;
  if (rule_ != "SAME" && rule_ != "SAME_LOWER")
    trace_error_here("[{}] expected the padding VALID, SAME or SAME_LOWER, got \"{}\"", function,
                     rule_);
  for (size_t i = 0; i < extents.size(); ++i) {
    if (strides[i] < 1)
      trace_error_here("[{}] expected strides of 1 or more, got {} for axis {}", function,
                       strides[i], i);
    const int64_t out = (extents[i] + strides[i] - 1) / strides[i];
    const int64_t sum = std::max<int64_t>((out - 1) * strides[i] + windows[i] - extents[i], 0);
    const int64_t less = sum / 2;
    result[i] = rule_ == "SAME" ? PadWidth{less, sum - less} : PadWidth{sum - less, less};
  }
  return result;
}

Array conv_general_dilated(const Operand& lhs, const Operand& rhs, const ConvOptions& options) {
  const CallSiteScope site(lhs.at);
  const WeakDType dtype = promote(lhs.dtype(), rhs.dtype());
  const Array x = to_array(lhs, dtype), k = to_array(rhs, dtype);
  if (x.rank() < 2 || x.rank() != k.rank())
    trace_error_here(
        "[conv_general_dilated] expected arrays of one rank of at least 2, got {} and {}",
        to_string(x.type()), to_string(k.type()));
  const auto n = static_cast<size_t>(x.rank()) - 2;
  const Letters axes = letters_of(options, n);
  return run_as_one("conv", [&] {
    const Array a = transpose(x, order_of(axes.lhs, "NC", axes.spatial, x.type()));
    const Array b = transpose(k, order_of(axes.rhs, "OI", axes.spatial, k.type()));
    ConvParams p;
    p.strides = or_ones(options.strides, n);
    p.lhs_dilation = or_ones(options.lhs_dilation, n);
    p.rhs_dilation = or_ones(options.rhs_dilation, n);
    p.feature_groups = options.feature_groups;
    p.batch_groups = options.batch_groups;
    check_lengths("conv_general_dilated",
                  {{&p.strides, "strides"},
                   {&p.lhs_dilation, "lhs_dilation"},
                   {&p.rhs_dilation, "rhs_dilation"}},
                  n);
    const bool is_stretched = std::any_of(p.lhs_dilation.begin(), p.lhs_dilation.end(),
                                          [](int64_t step) { return step != 1; });
    if (is_stretched && !options.padding.is_rule("VALID") && !options.padding.is_rule(""))
      trace_error_here(
          "[conv_general_dilated] expected widths of padding or VALID with lhs_dilation, got a "
          "rule; use conv_transpose for rules");
    for (const PadWidth& w :
         options.padding.widths("conv_general_dilated", spatial_of(a),
                                dilated(spatial_of(b), p.rhs_dilation), p.strides)) {
      p.low.push_back(w.before);
      p.high.push_back(w.after);
    }
    const Array y = record1(OpKind::kConvolution, p, {a, b});
    const Dims order = order_of(axes.out, "NC", axes.spatial, y.type());
    Dims back(order.size());
    for (size_t i = 0; i < order.size(); ++i)
      back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
    return transpose(y, back);
  });
}

Array conv(const Operand& lhs, const Operand& rhs, const Dims& strides, const Padding& padding) {
  return conv_general_dilated(lhs, rhs, {.strides = strides, .padding = padding});
}

Array conv_transpose(const Operand& lhs, const Operand& rhs, const Dims& strides,
                     const ConvOptions& options) {
  const CallSiteScope site(lhs.at);
  const ArrayType type{rhs.dtype().dtype, rhs.shape()};
  const auto n = static_cast<size_t>(std::max(type.shape.rank() - 2, 0));
  check_lengths("conv_transpose", {{&strides, "strides"}}, n);
  const Letters axes = letters_of(options, n);
  const Dims order = order_of(axes.rhs, "OI", axes.spatial, type);
  const Dims dilation = or_ones(options.rhs_dilation, n);
  check_lengths("conv_transpose", {{&dilation, "rhs_dilation"}}, n);
  // Widths of the convolution that undoes a strided one with this padding.
  Dims windows;
  for (size_t i = 0; i < n; ++i)
    windows.push_back((type.shape[static_cast<int>(order[i + 2])] - 1) * dilation[i] + 1);
  std::vector<PadWidth> widths;
  const bool same = options.padding.is_rule("SAME");
  if (!same && !options.padding.is_rule("VALID")) {
    widths = options.padding.widths("conv_transpose", windows, windows, strides);
  } else {
    for (size_t i = 0; i < n; ++i) {
      const int64_t k = windows[i], s = strides[i];
      const int64_t sum = k + s - 2 + (same ? 0 : std::max<int64_t>(k - s, 0));
      const int64_t before = !same || s > k - 1 ? k - 1 : (sum + 1) / 2;
      widths.push_back({before, sum - before});
    }
  }
  ConvOptions turned = options;
  turned.strides = {};
  turned.lhs_dilation = strides;
  turned.padding = widths;
  return conv_general_dilated(lhs, rhs, turned);
}

Array convolve(const Operand& a, const Operand& v, std::string_view mode) {
  const CallSiteScope site(a.at);
  const WeakDType dtype = float_dtype(a, v);
  Array x = to_array(a, dtype), k = to_array(v, dtype);
  if (x.rank() != 1 || k.rank() != 1 || x.size() == 0 || k.size() == 0)
    trace_error_here("[convolve] expected two vectors with elements, got {} and {}",
                     to_string(x.type()), to_string(k.type()));
  if (x.size() < k.size()) std::swap(x, k);
  const int64_t n = k.size();
  PadWidth width{n - 1, n - 1};
  if (mode == "same")
    width = {n / 2, n - n / 2 - 1};
  else if (mode == "valid")
    width = {};
  else if (mode != "full")
    trace_error_here("[convolve] expected the mode full, same or valid, got \"{}\"", mode);
  return run_as_one("convolve", [&] {
    const Array y = conv_general_dilated(reshape(x, {1, 1, -1}), reshape(flip(k), {1, 1, -1}),
                                         {.padding = {width}});
    return reshape(y, {-1});
  });
}

Array reduce_window_sum(const Operand& x, const Dims& window, const WindowOptions& options) {
  return window_op(OpKind::kWindowSum, "reduce_window_sum", x, window, options);
}
Array reduce_window_max(const Operand& x, const Dims& window, const WindowOptions& options) {
  return window_op(OpKind::kWindowMax, "reduce_window_max", x, window, options);
}
Array reduce_window_min(const Operand& x, const Dims& window, const WindowOptions& options) {
  return window_op(OpKind::kWindowMin, "reduce_window_min", x, window, options);
}

Array max_pool(const Operand& x, const Dims& window, const Dims& strides, const Padding& padding) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  const Pool pool = pool_of("max_pool", a, window, strides, padding);
  return reduce_window_max(a, pool.window, pool.options);
}

Array min_pool(const Operand& x, const Dims& window, const Dims& strides, const Padding& padding) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  const Pool pool = pool_of("min_pool", a, window, strides, padding);
  return reduce_window_min(a, pool.window, pool.options);
}

Array avg_pool(const Operand& x, const Dims& window, const Dims& strides, const Padding& padding,
               bool count_padding) {
  const CallSiteScope site(x.at);
  const Array a = to_float_array(x);
  const Pool pool = pool_of("avg_pool", a, window, strides, padding);
  return run_as_one("avg_pool", [&] {
    const Array sums = reduce_window_sum(a, pool.window, pool.options);
    if (!count_padding) return sums / reduce_window_sum(ones_like(a), pool.window, pool.options);
    double n = 1;
    for (int64_t extent : window) n *= static_cast<double>(extent);
    return sums / n;
  });
}

}  // namespace stow
