#include "stowage/api/counting.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "stowage/api/at.h"
#include "stowage/api/indexing.h"
#include "stowage/api/math.h"
#include "stowage/api/math_internal.h"

namespace stow {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// For each place the number of its element in x flattened, and whether there is one.
struct Found {
  Array flat, there;
};
Found find(const char* name, const Array& x, int64_t size) {
  if (size < 0) trace_error_here("[{}] expected a size of 0 or more, got {}", name, size);
  if (x.size() == 0 || size == 0)
    return {zeros({size}, DType::kI32), zeros({size}, DType::kBool)};
  const Array is = astype(astype(ravel(x), DType::kBool), DType::kI32);
  const Array count = cumsum(is, 0);
  // Places beyond the last are dropped.
  const Array place = where(is != 0, count - 1, full_like(count, size));
  const Array flat = zeros({size}, DType::kI32).at({place}).set(arange(x.size()));
  return {flat, arange(size) < count[-1]};
}

Array without_nan(const Array& a, double instead) {
  return where(isnan(a), full_like(a, instead), a);
}

// The extreme of what is no NaN; NaN of nothing but NaN.
Array nan_extreme(const char* name, const Operand& x, const Axes& axes, bool keepdims,
                  Array (*extreme)(const Operand&, const Axes&, bool), double neutral) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  if (!is_float(a.dtype())) return extreme(a, axes, keepdims);
  return run_as_one(name, [&] {
    const Array found = extreme(without_nan(a, neutral), axes, keepdims);
    const Array nothing = all(isnan(a), axes, keepdims);
    return where(nothing, full_like(found, std::numeric_limits<double>::quiet_NaN()), found);
  });
}

}  // namespace

std::vector<Array> nonzero(const Operand& x, int64_t size, int64_t fill_value) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  if (a.rank() == 0)
    trace_error_here("[nonzero] expected an array with an axis, got {}", to_string(a.type()));
  return traced_or_run("nonzero", [&] {
    const Found found = find("nonzero", a, size);
    std::vector<Array> indices(static_cast<size_t>(a.rank()));
    Array rest = found.flat;
    for (int axis = a.rank(); axis-- > 0;) {
      const auto extent = static_cast<int32_t>(std::max<int64_t>(a.shape()[axis], 1));
      indices[static_cast<size_t>(axis)] =
          where(found.there, rem(rest, extent), static_cast<int32_t>(fill_value));
      rest = div(rest, extent);
    }
    return indices;
  });
}

Array flatnonzero(const Operand& x, int64_t size, int64_t fill_value) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  return run_as_one("flatnonzero", [&] {
    const Found found = find("flatnonzero", a, size);
    return where(found.there, found.flat, static_cast<int32_t>(fill_value));
  });
}

Array argwhere(const Operand& x, int64_t size, int64_t fill_value) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  return run_as_one("argwhere", [&] { return stack(nonzero(a, size, fill_value), 1); });
}

Array compress(const Operand& condition, const Operand& x, int64_t size, int axis,
               double fill_value) {
  const CallSiteScope site(condition.at);
  const Array c = to_array(condition), a = to_array(x);
  const int64_t at = normalize_axis("compress", axis, a.rank(), a.type());
  if (c.rank() != 1 || c.size() > a.shape()[static_cast<int>(at)])
    trace_error_here("[compress] expected a vector no longer than axis {} of {}, got {}", at,
                     to_string(a.type()), to_string(c.type()));
  return run_as_one("compress", [&] {
    const Found found = find("compress", c, size);
    Dims spread(static_cast<size_t>(a.rank()), 1);
    spread[static_cast<size_t>(at)] = size;
    if (a.shape()[static_cast<int>(at)] == 0) {
      Dims dims = a.shape().dims();
      dims[static_cast<size_t>(at)] = size;
      return full(Shape(dims), fill_value, a.dtype());
    }
    const Array taken = take(a, found.flat, static_cast<int>(at), IndexMode::kClip);
    return where(reshape(found.there, spread), taken, full_like(taken, fill_value));
  });
}

Array bincount(const Operand& x, int64_t length, const std::optional<Array>& weights) {
  const CallSiteScope site(x.at);
  const Array given = to_array(x);
  const Array a = given.dtype() == DType::kBool ? astype(given, DType::kI32) : given;
  if (!is_integer(a.dtype()) || a.rank() != 1)
    trace_error_here("[bincount] expected a vector of integers, got {}", to_string(a.type()));
  if (length < 0) trace_error_here("[bincount] expected a length of 0 or more, got {}", length);
  if (weights && !(weights->shape() == a.shape()))
    trace_error_here("[bincount] expected weights of the shape of the vector, got {} for {}",
                     to_string(weights->type()), to_string(a.type()));
  return run_as_one("bincount", [&] {
    const Array each = weights ? *weights : ones(a.shape(), DType::kI32);
    const Array counts = zeros({length}, each.dtype());
    if (length == 0 || a.size() == 0) return counts;
    return counts.at({maximum(a, 0)}).add(each);
  });
}

Array nansum(const Operand& x, const Axes& axes, bool keepdims) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  return run_as_one("nansum", [&] {
    return sum(is_float(a.dtype()) ? without_nan(a, 0) : a, axes, keepdims);
  });
}
Array nanprod(const Operand& x, const Axes& axes, bool keepdims) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  return run_as_one("nanprod", [&] {
    return prod(is_float(a.dtype()) ? without_nan(a, 1) : a, axes, keepdims);
  });
}
Array nanmax(const Operand& x, const Axes& axes, bool keepdims) {
  return nan_extreme("nanmax", x, axes, keepdims, max, -kInf);
}
Array nanmin(const Operand& x, const Axes& axes, bool keepdims) {
  return nan_extreme("nanmin", x, axes, keepdims, min, kInf);
}
Array nanmean(const Operand& x, const Axes& axes, bool keepdims) {
  const CallSiteScope site(x.at);
  const Array a = to_float_array(x);
  return run_as_one("nanmean", [&] {
    const Array f = at_least_f32(a);
    const Array count = sum(astype(logical_not(isnan(f)), f.dtype()), axes, keepdims);
    return convert_to(sum(without_nan(f, 0), axes, keepdims) / count, a.dtype());
  });
}

Array nanvar(const Operand& x, const Axes& axes, int ddof, bool keepdims) {
  const CallSiteScope site(x.at);
  const Array a = to_float_array(x);
  return run_as_one("nanvar", [&] {
    const Array f = at_least_f32(a);
    const Array gone = isnan(f);
    const Array off = where(gone, zeros_like(f), f - nanmean(f, axes, true));
    const Array n = sum(astype(logical_not(gone), f.dtype()), axes, keepdims) -
                    static_cast<double>(ddof);
    const Array none = n <= 0, total = sum(square(off), axes, keepdims);
    const Array result =
        where(none, full_like(total, std::numeric_limits<double>::quiet_NaN()), total) /
        where(none, ones_like(n), n);
    return convert_to(result, a.dtype());
  });
}
Array nanstd(const Operand& x, const Axes& axes, int ddof, bool keepdims) {
  const CallSiteScope site(x.at);
  return sqrt(nanvar(x, axes, ddof, keepdims));
}

Array ptp(const Operand& x, const Axes& axes, bool keepdims) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  normalize_axes("ptp", axes, a.type(), true);
  return run_as_one("ptp", [&] { return max(a, axes, keepdims) - min(a, axes, keepdims); });
}

namespace {

// Weights of the extents that `axes` of x have, in that order, as weights along these axes; others
// as they are.
Array along(const Array& weights, const Dims& axes, const Array& x) {
  Dims extents, order(axes.size()), shape(static_cast<size_t>(x.rank()), 1);
  for (const int64_t axis : axes) {
    extents.push_back(x.shape()[static_cast<int>(axis)]);
    shape[static_cast<size_t>(axis)] = extents.back();
  }
  if (weights.shape() == x.shape() || weights.shape() != Shape(extents)) return weights;
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int64_t i, int64_t j) {
    return axes[static_cast<size_t>(i)] < axes[static_cast<size_t>(j)];
  });
  return reshape(transpose(weights, order), shape);
}

}  // namespace

Array average(const Operand& x, const Operand& weights, const Axes& axes, bool keepdims) {
  const CallSiteScope site(x.at);
  const WeakDType dtype = float_dtype(x, weights);
  const Array a = to_array(x, dtype), w = to_array(weights, dtype);
  return run_as_one("average", [&] {
    const Array placed =
        axes.given() ? along(w, normalize_axes("average", axes, a.type(), true), a) : w;
    const Array each =
        broadcast_array(placed, broadcast_shapes("average", a.type(), placed.type()));
    return sum(a * each, axes, keepdims) / sum(each, axes, keepdims);
  });
}

Array percentile(const Operand& x, double q, const Axes& axes, bool keepdims) {
  const CallSiteScope site(x.at);
  if (!(q >= 0 && q <= 100)) trace_error_here("[percentile] q must lie in [0, 100], got {}", q);
  return quantile(x, q / 100, axes, keepdims);
}

}  // namespace stow
