#include "stowage/nn/named/reduce.h"

#include "stowage/api/nn.h"
#include "stowage/api/reduce.h"
#include "stowage/api/trace.h"
#include "stowage/nn/named/access.h"

namespace stow::named {
namespace {

// f(array, axes, options) of the axes selected; they are dropped.
template <typename F>
NamedArray reduce(const char* name, const NamedArray& x, const AxisSelection& axes,
                  const NamedReduceOptions& options, SourceLocation at, F f) {
  const CallSiteScope site(at);
  check_axes_fit(name, x);
  const std::vector<Axis> reduced = select(name, x, axes);
  ReduceOptions plain{.initial = options.initial, .dtype = options.dtype};
  if (options.where) {
    check_axes_fit(name, *options.where);
    for (const Axis& axis : options.where->axes()) {
      const std::optional<size_t> place = find_axis(x.axes(), axis.name);
      if (!place || x.axes()[*place] != axis)
        trace_error_here("[{}] expected a `where` with axes of {}, got {}", name,
                         to_string(x.axes()), to_string(options.where->axes()));
    }
    plain.where = aligned(*options.where, x.axes());
  }
  return NamedAccess::make(f(x.array(), Axes(places_of(x, reduced)), plain),
                           without_axes(x.axes(), reduced));
}

bool is_plain(const ReduceOptions& options) {
  return !options.where && !options.initial && !options.dtype;
}

// f(array, axes) of the axes selected; x keeps its axes.
template <typename F>
NamedArray along(const char* name, const NamedArray& x, const AxisSelection& axes,
                 SourceLocation at, F f) {
  const CallSiteScope site(at);
  check_axes_fit(name, x);
  const std::vector<Axis> selected = select(name, x, axes);
  return NamedAccess::make(f(x.array(), Axes(places_of(x, selected))), x.axes());
}

}  // namespace

#define STOW_NAMED_REDUCTION(f)                                                                   \
  NamedArray f(const NamedArray& x, const AxisSelection& axes, const NamedReduceOptions& options, \
               SourceLocation at) {                                                               \
    return reduce(#f, x, axes, options, at,                                                       \
                  [](const Array& a, const Axes& over, const ReduceOptions& plain) {              \
                    return is_plain(plain) ? stow::f(a, over) : stow::f(a, over, plain);          \
                  });                                                                             \
  }
STOW_NAMED_REDUCTION(sum)
STOW_NAMED_REDUCTION(prod)
STOW_NAMED_REDUCTION(mean)
STOW_NAMED_REDUCTION(max)
STOW_NAMED_REDUCTION(min)
STOW_NAMED_REDUCTION(any)
STOW_NAMED_REDUCTION(all)
STOW_NAMED_REDUCTION(logsumexp)
#undef STOW_NAMED_REDUCTION

NamedArray var(const NamedArray& x, const AxisSelection& axes, int ddof,
               const NamedReduceOptions& options, SourceLocation at) {
  return reduce("var", x, axes, options, at,
                [&](const Array& a, const Axes& over, const ReduceOptions& plain) {
                  return is_plain(plain) ? stow::var(a, over, ddof)
                                         : stow::var(a, over, ddof, plain);
                });
}

NamedArray standard_deviation(const NamedArray& x, const AxisSelection& axes, int ddof,
                              const NamedReduceOptions& options, SourceLocation at) {
  return reduce("standard_deviation", x, axes, options, at,
                [&](const Array& a, const Axes& over, const ReduceOptions& plain) {
                  return is_plain(plain) ? stow::standard_deviation(a, over, ddof)
                                         : stow::standard_deviation(a, over, ddof, plain);
                });
}

NamedArray argmax(const NamedArray& x, const AxisSelector& axis, SourceLocation at) {
  return reduce("argmax", x, AxisSelection({axis}), {}, at,
                [](const Array& a, const Axes& over, const ReduceOptions&) {
                  return stow::argmax(a, static_cast<int>(over.list()[0]));
                });
}

NamedArray argmin(const NamedArray& x, const AxisSelector& axis, SourceLocation at) {
  return reduce("argmin", x, AxisSelection({axis}), {}, at,
                [](const Array& a, const Axes& over, const ReduceOptions&) {
                  return stow::argmin(a, static_cast<int>(over.list()[0]));
                });
}

NamedArray cumsum(const NamedArray& x, const AxisSelector& axis, bool reverse, SourceLocation at) {
  return along("cumsum", x, AxisSelection({axis}), at, [&](const Array& a, const Axes& over) {
    return stow::cumsum(a, static_cast<int>(over.list()[0]), reverse);
  });
}

NamedArray softmax(const NamedArray& x, const AxisSelection& axes, SourceLocation at) {
  return along("softmax", x, axes, at,
               [](const Array& a, const Axes& over) { return stow::softmax(a, over); });
}

NamedArray log_softmax(const NamedArray& x, const AxisSelection& axes, SourceLocation at) {
  return along("log_softmax", x, axes, at,
               [](const Array& a, const Axes& over) { return stow::log_softmax(a, over); });
}

NamedArray standardize(const NamedArray& x, const AxisSelection& axes, double eps,
                       SourceLocation at) {
  return along("standardize", x, axes, at,
               [&](const Array& a, const Axes& over) { return stow::standardize(a, over, eps); });
}

}  // namespace stow::named
