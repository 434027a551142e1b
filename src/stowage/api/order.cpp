// What follows an order along an axis: running reductions, sorting, order statistics.
#include <algorithm>
#include <cmath>
#include <limits>

#include "stowage/api/indexing.h"
#include "stowage/api/math.h"
#include "stowage/api/math_internal.h"
#include "stowage/api/reduce.h"

namespace stow {
namespace {

Array cumulative(OpKind op, const char* name, const Array& x, std::optional<int> axis,
                 bool reverse) {
  const Array a = axis ? x : ravel(x);
  return record1(op, AxisParams{check_axis(name, axis.value_or(0), a.rank(), a.type()), reverse},
                 {a});
}

// jax.numpy counts bools and keeps any other dtype.
Array counted(const Array& x) {
  return x.dtype() == DType::kBool ? convert_to(x, DType::kI32) : x;
}

}  // namespace

Array cumsum(const Operand& x, std::optional<int> axis, bool reverse) {
  const Site site(x.at);
  return with_weak(cumulative(OpKind::kCumSum, "cumsum", counted(to_array(x)), axis, reverse),
                   false);
}
Array cumprod(const Operand& x, std::optional<int> axis, bool reverse) {
  const Site site(x.at);
  return with_weak(cumulative(OpKind::kCumProd, "cumprod", counted(to_array(x)), axis, reverse),
                   false);
}
Array cummax(const Operand& x, int axis, bool reverse) {
  const Site site(x.at);
  return cumulative(OpKind::kCumMax, "cummax", to_array(x), axis, reverse);
}
Array cummin(const Operand& x, int axis, bool reverse) {
  const Site site(x.at);
  return cumulative(OpKind::kCumMin, "cummin", to_array(x), axis, reverse);
}
Array cumlogsumexp(const Operand& x, int axis, bool reverse) {
  const Site site(x.at);
  return cumulative(OpKind::kCumLogSumExp, "cumlogsumexp", to_float_array(x), axis, reverse);
}

Array linear_scan(const Operand& a, const Operand& b, int axis, bool reverse) {
  const Site site(a.at);
  const WeakDType dtype = promote(a.dtype(), b.dtype());
  const Array x = to_array(a, dtype), y = to_array(b, dtype);
  const Shape shape = broadcast_shapes("linear_scan", x.type(), y.type());
  const ArrayType type{dtype.dtype, shape};
  const AxisParams params{check_axis("linear_scan", axis, shape.rank(), type), reverse};
  return run_as_one("linear_scan", [&] {
    return record1(OpKind::kLinearScan, params,
                   {broadcast_array(x, shape), broadcast_array(y, shape)});
  });
}

Array diff(const Operand& x, int axis) {
  const Site site(x.at);
  const Array a = to_array(x);
  const auto i = static_cast<int>(check_axis("diff", axis, a.rank(), a.type()));
  const int64_t n = a.shape()[i];
  return run_as_one("diff", [&] {
    const Array later = slice(a, i, 1, n), earlier = slice(a, i, 0, std::max<int64_t>(n - 1, 0));
    return a.dtype() == DType::kBool ? later != earlier : later - earlier;
  });
}

Array sort(const Operand& x, int axis, bool descending) {
  const Site site(x.at);
  const Array a = to_array(x);
  const int64_t i = check_axis("sort", axis, a.rank(), a.type());
  // Turned around after sorting, as JAX does: equal elements (0 and -0) come out the same.
  return run_as_one("sort", [&] {
    const Array sorted = record1(OpKind::kSort, AxisParams{i, false}, {a});
    return descending ? flip(sorted, i) : sorted;
  });
}

Array argsort(const Operand& x, int axis, bool descending) {
  const Site site(x.at);
  const Array a = to_array(x);
  const int64_t i = check_axis("argsort", axis, a.rank(), a.type());
  return run_as_one("argsort", [&] {
    const Array operands[] = {a, iota(a.shape(), static_cast<int>(i))};
    return record(OpKind::kSort, AxisParams{i, descending}, operands)[1];
  });
}

std::pair<Array, Array> top_k(const Operand& x, int64_t k, int axis) {
  const Site site(x.at);
  const Array a = to_array(x);
  const TopKParams params{check_axis("top_k", axis, a.rank(), a.type()), k};
  const std::vector<Array> results = record(OpKind::kTopK, params, {&a, 1});
  return {results[0], results[1]};
}

namespace {

// A function of the two of the sorted elements between which the fraction q lies, given also how
// far it is from the first to the second.
using Between = Array (*)(const Array& low, const Array& high, double weight);
Array order_statistic(const char* name, const Operand& x, double q, const Axes& axes, bool keepdims,
                      Between between) {
  const Site site(x.at);
  const Array a = to_float_array(x);
  Dims list = check_axes(name, axes, a.type(), true);
  std::sort(list.begin(), list.end());
  // The axes meant, joined and last.
  Dims order, lead, kept = a.shape().dims();
  for (int64_t i = 0; i < a.rank(); ++i)
    if (std::find(list.begin(), list.end(), i) == list.end()) {
      order.push_back(i);
      lead.push_back(a.shape()[static_cast<int>(i)]);
    }
  int64_t n = 1;
  for (int64_t axis : list) {
    order.push_back(axis);
    n *= a.shape()[static_cast<int>(axis)];
    kept[static_cast<size_t>(axis)] = 1;
  }
  if (n == 0) fail_here("[{}] nothing to take it of in {}", name, to_string(a.type()));
  Dims joined = lead;
  joined.push_back(n);
  return run_as_one(name, [&] {
    const Array rows = reshape(transpose(a, order), joined);
    const Array sorted =
        sort(where(any(isnan(rows), -1, true),
                   full_like(rows, std::numeric_limits<double>::quiet_NaN()), rows));
    const double wide = q * static_cast<double>(n - 1);
    const double place =
        a.dtype() == DType::kF64 ? wide : static_cast<double>(static_cast<float>(wide));
    const auto low = static_cast<int64_t>(std::floor(place));
    const auto high = static_cast<int64_t>(std::ceil(place));
    const double weight = place - std::floor(place);
    const auto at = [&](int64_t i) { return squeeze(slice(sorted, -1, i, i + 1), -1); };
    const Array value = between(at(low), at(high), weight);
    return keepdims ? reshape(value, kept) : value;
  });
}

}  // namespace

Array quantile(const Operand& x, double q, const Axes& axes, bool keepdims) {
  const Site site(x.at);
  if (!(q >= 0 && q <= 1)) fail_here("[quantile] q must lie in [0, 1], got {}", q);
  return order_statistic("quantile", x, q, axes, keepdims,
                         [](const Array& low, const Array& high, double weight) {
                           return low * (1 - weight) + high * weight;
                         });
}

// Half of the sum of both, also where they are one: of infinity, infinity.
Array median(const Operand& x, const Axes& axes, bool keepdims) {
  const Site site(x.at);
  return order_statistic(
      "median", x, 0.5, axes, keepdims,
      [](const Array& low, const Array& high, double) { return (low + high) * 0.5; });
}

Array searchsorted(const Operand& sorted, const Operand& values, bool right) {
  const Site site(sorted.at);
  const WeakDType dtype = promote(sorted.dtype(), values.dtype());
  const Array s = to_array(sorted, dtype), v = to_array(values, dtype);
  if (s.rank() != 1) fail_here("[searchsorted] a vector is needed, got {}", to_string(s.type()));
  return run_as_one("searchsorted", [&] {
    const Array value = expand_dims(v, v.rank());
    // NaN is the largest number.
    const Array below = right ? logical_or(s <= value, isnan(value))
                              : logical_or(s < value, logical_and(isnan(value), s == s));
    return sum(astype(below, DType::kI32), -1);
  });
}

Array count_nonzero(const Operand& x, const Axes& axes, bool keepdims) {
  const Site site(x.at);
  const Array a = to_array(x);
  return run_as_one("count_nonzero",
                    [&] { return sum(astype(a != 0, DType::kI32), axes, keepdims); });
}

}  // namespace stow
