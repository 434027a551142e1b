// Functions built on an order along an axis: running reductions, sorting, order statistics.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <span>

#include "stowage/api/indexing.h"
#include "stowage/api/math.h"
#include "stowage/api/math_internal.h"
#include "stowage/api/reduce.h"

namespace stow {
namespace {

Array cumulative(OpKind op, const char* name, const Array& x, std::optional<int> axis,
                 bool reverse) {
  const Array a = axis ? x : ravel(x);
  return record1(
      op, AxisParams{normalize_axis(name, axis.value_or(0), a.rank(), a.type()), reverse}, {a});
}

// jax.numpy counts bools and keeps any other dtype.
Array counted(const Array& x) {
  return x.dtype() == DType::kBool ? convert_to(x, DType::kI32) : x;
}

}  // namespace

Array cumsum(const Operand& x, std::optional<int> axis, bool reverse) {
  const CallSiteScope site(x.at);
  return with_weak(cumulative(OpKind::kCumSum, "cumsum", counted(to_array(x)), axis, reverse),
                   false);
}
Array cumprod(const Operand& x, std::optional<int> axis, bool reverse) {
  const CallSiteScope site(x.at);
  return with_weak(cumulative(OpKind::kCumProd, "cumprod", counted(to_array(x)), axis, reverse),
                   false);
}
Array cummax(const Operand& x, int axis, bool reverse) {
  const CallSiteScope site(x.at);
  return cumulative(OpKind::kCumMax, "cummax", to_array(x), axis, reverse);
}
Array cummin(const Operand& x, int axis, bool reverse) {
  const CallSiteScope site(x.at);
  return cumulative(OpKind::kCumMin, "cummin", to_array(x), axis, reverse);
}
Array cumlogsumexp(const Operand& x, int axis, bool reverse) {
  const CallSiteScope site(x.at);
  return cumulative(OpKind::kCumLogSumExp, "cumlogsumexp", to_float_array(x), axis, reverse);
}

Array linear_scan(const Operand& a, const Operand& b, int axis, bool reverse) {
  const CallSiteScope site(a.at);
  const WeakDType dtype = promote(a.dtype(), b.dtype());
  const Array x = to_array(a, dtype), y = to_array(b, dtype);
  const Shape shape = broadcast_shapes("linear_scan", x.type(), y.type());
  const ArrayType type{dtype.dtype, shape};
  const AxisParams params{normalize_axis("linear_scan", axis, shape.rank(), type), reverse};
  return run_as_one("linear_scan", [&] {
    return record1(OpKind::kLinearScan, params,
                   {broadcast_array(x, shape), broadcast_array(y, shape)});
  });
}

Array diff(const Operand& x, int axis, int n) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  const auto i = static_cast<int>(normalize_axis("diff", axis, a.rank(), a.type()));
  if (n < 0) trace_error_here("[diff] expected an n of 0 or more, got {}", n);
  return run_as_one("diff", [&] {
    Array result = a;
    for (int k = 0; k < n; ++k) {
      const int64_t extent = result.shape()[i];
      const Array later = slice(result, i, 1, std::max<int64_t>(extent, 1));
      const Array earlier = slice(result, i, 0, std::max<int64_t>(extent - 1, 0));
      result = a.dtype() == DType::kBool ? later != earlier : later - earlier;
    }
    return result;
  });
}

Array sort(const Operand& x, int axis, bool descending) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  const int64_t i = normalize_axis("sort", axis, a.rank(), a.type());
  // Turned around after sorting, as JAX does: equal elements (0 and -0) come out the same.
  return run_as_one("sort", [&] {
    const Array sorted = record1(OpKind::kSort, AxisParams{i, false}, {a});
    return descending ? flip(sorted, i) : sorted;
  });
}

Array argsort(const Operand& x, int axis, bool descending) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  const int64_t i = normalize_axis("argsort", axis, a.rank(), a.type());
  return run_as_one("argsort", [&] {
    const Array operands[] = {a, iota(a.shape(), static_cast<int>(i))};
    return record(OpKind::kSort, AxisParams{i, descending}, operands)[1];
  });
}

namespace {

// The order (i32) that sorts by the first key, what is equal there by the second, and so on.
Array order_by(std::span<const Array> keys, int64_t axis) {
  Array order = iota(keys[0].shape(), static_cast<int>(axis));
  for (size_t k = keys.size(); k-- > 0;) {
    const Array key = k + 1 == keys.size() ? keys[k]
                                           : take_along_axis(keys[k], order, static_cast<int>(axis),
                                                             IndexMode::kClip);
    const Array operands[] = {key, order};
    order = record(OpKind::kSort, AxisParams{axis, false}, operands)[1];
  }
  return order;
}

// The axis, once it is known that there are operands of one shape.
int64_t check_alike(const char* name, const std::vector<Array>& operands, int axis) {
  if (operands.empty()) trace_error_here("[{}] expected at least one operand, got none", name);
  for (const Array& a : operands)
    if (!(a.shape() == operands[0].shape()))
      trace_error_here("[{}] expected operands of one shape, got {} beside {}", name,
                       to_string(a.type()), to_string(operands[0].type()));
  return normalize_axis(name, axis, operands[0].rank(), operands[0].type());
}

}  // namespace

std::vector<Array> sort(const std::vector<Array>& operands, int axis, int n_keys,
                        SourceLocation at) {
  const CallSiteScope site(at);
  const int64_t i = check_alike("sort", operands, axis);
  if (n_keys < 1 || n_keys > static_cast<int>(operands.size()))
    trace_error_here(
        "[sort] expected at least 1 key and no more than operands, got {} keys of {} operands",
        n_keys, operands.size());
  if (n_keys == 1) return record(OpKind::kSort, AxisParams{i, false}, operands);
  return traced_or_run("sort", [&] {
    const Array order = order_by(std::span(operands).first(static_cast<size_t>(n_keys)), i);
    std::vector<Array> sorted;
    for (const Array& a : operands)
      sorted.push_back(take_along_axis(a, order, static_cast<int>(i), IndexMode::kClip));
    return sorted;
  });
}

Array lexsort(const std::vector<Array>& keys, int axis, SourceLocation at) {
  const CallSiteScope site(at);
  const int64_t i = check_alike("lexsort", keys, axis);
  return run_as_one("lexsort",
                    [&] { return order_by(std::vector<Array>(keys.rbegin(), keys.rend()), i); });
}

std::pair<Array, Array> top_k(const Operand& x, int64_t k, int axis) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  const TopKParams params{normalize_axis("top_k", axis, a.rank(), a.type()), k};
  const std::vector<Array> results = record(OpKind::kTopK, params, {&a, 1});
  return {results[0], results[1]};
}

namespace {

// The elements of a statistic, in the last axis of `rows`, and the shapes of its result.
struct Rows {
  Array rows;
  Dims lead, kept;
  int64_t n = 1;

  Rows(const char* name, const Array& a, const Axes& axes) : kept(a.shape().dims()) {
    Dims list = normalize_axes(name, axes, a.type(), true), order;
    std::sort(list.begin(), list.end());
    for (int64_t i = 0; i < a.rank(); ++i)
      if (std::find(list.begin(), list.end(), i) == list.end()) {
        order.push_back(i);
        lead.push_back(a.shape()[static_cast<int>(i)]);
      }
    for (int64_t axis : list) {
      order.push_back(axis);
      n *= a.shape()[static_cast<int>(axis)];
      kept[static_cast<size_t>(axis)] = 1;
    }
    if (n == 0)
      trace_error_here("[{}] expected at least one element, got {}", name, to_string(a.type()));
    Dims joined = lead;
    joined.push_back(n);
    rows = reshape(transpose(a, order), joined);
  }
};

// A function of the two of the sorted elements between which the fraction q lies, given also what
// share of it each is by its distance.
using Between = Array (*)(const Array& low, const Array& high, const Operand& of_low,
                          const Operand& of_high);
Array linear(const Array& low, const Array& high, const Operand& of_low, const Operand& of_high) {
  return low * of_low + high * of_high;
}
// Half of the sum of both, also where they are one: of infinity, infinity.
Array midpoint(const Array& low, const Array& high, const Operand&, const Operand&) {
  return (low + high) * 0.5;
}

Array order_statistic(const char* name, const Operand& x, double q, const Axes& axes, bool keepdims,
                      Between between) {
  const CallSiteScope site(x.at);
  const Array a = to_float_array(x);
  return run_as_one(name, [&] {
    const Rows r(name, a, axes);
    const Array sorted =
        sort(where(any(isnan(r.rows), -1, true),
                   full_like(r.rows, std::numeric_limits<double>::quiet_NaN()), r.rows));
    const double wide = q * static_cast<double>(r.n - 1);
    const double place =
        a.dtype() == DType::kF64 ? wide : static_cast<double>(static_cast<float>(wide));
    const auto low = static_cast<int64_t>(std::floor(place));
    const auto high = static_cast<int64_t>(std::ceil(place));
    const auto at = [&](int64_t i) { return squeeze(slice(sorted, -1, i, i + 1), -1); };
    const double of_high = place - std::floor(place);
    const Array value = between(at(low), at(high), 1 - of_high, of_high);
    return keepdims ? reshape(value, r.kept) : value;
  });
}

// The same of what is no NaN; NaN of nothing.
Array nan_statistic(const char* name, const Operand& x, double q, const Axes& axes, bool keepdims,
                    Between between) {
  const CallSiteScope site(x.at);
  const Array a = to_float_array(x);
  return run_as_one(name, [&] {
    const Rows r(name, a, axes);
    const Array sorted = sort(r.rows);
    const DType wide = a.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
    const Array last = sum(astype(logical_not(isnan(r.rows)), wide), -1, true) - 1;
    const Array place = q * last;
    const auto at = [&](const Array& i) {
      const Array inside = maximum(minimum(i, last), 0);
      return astype(take_along_axis(sorted, astype(inside, DType::kI32), -1), wide);
    };
    const Array low = floor(place), of_high = place - low;
    const Array value = between(at(low), at(ceil(place)), 1 - of_high, of_high);
    return reshape(astype(value, a.dtype()), keepdims ? r.kept : r.lead);
  });
}

void check_fraction(const char* name, double q) {
  if (!(q >= 0 && q <= 1)) trace_error_here("[{}] q must lie in [0, 1], got {}", name, q);
}

}  // namespace

Array quantile(const Operand& x, double q, const Axes& axes, bool keepdims) {
  const CallSiteScope site(x.at);
  check_fraction("quantile", q);
  return order_statistic("quantile", x, q, axes, keepdims, linear);
}
Array median(const Operand& x, const Axes& axes, bool keepdims) {
  return order_statistic("median", x, 0.5, axes, keepdims, midpoint);
}
Array nanquantile(const Operand& x, double q, const Axes& axes, bool keepdims) {
  const CallSiteScope site(x.at);
  check_fraction("nanquantile", q);
  return nan_statistic("nanquantile", x, q, axes, keepdims, linear);
}
Array nanmedian(const Operand& x, const Axes& axes, bool keepdims) {
  return nan_statistic("nanmedian", x, 0.5, axes, keepdims, midpoint);
}

Array searchsorted(const Operand& sorted, const Operand& values, bool right) {
  const CallSiteScope site(sorted.at);
  const WeakDType dtype = promote(sorted.dtype(), values.dtype());
  const Array s = to_array(sorted, dtype), v = to_array(values, dtype);
  if (s.rank() != 1)
    trace_error_here("[searchsorted] expected a vector, got {}", to_string(s.type()));
  return run_as_one("searchsorted", [&] {
    // Binary search, a halving at a time for all values: `place` elements lie below for certain,
    // and fewer than 2 * step more do. NaN is the largest number.
    Array place = zeros(v.shape(), DType::kI32);
    const int64_t n = s.size();
    for (auto step = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(n))); step > 0;
         step /= 2) {
      const Array last = place + static_cast<int32_t>(step - 1);
      const Array tried = take(s, last, 0, IndexMode::kClip);
      Array below = right ? tried <= v : tried < v;
      if (is_float(s.dtype()))
        below = logical_or(below, right ? isnan(v) : logical_and(isnan(v), tried == tried));
      const Array within = last < static_cast<int32_t>(n);
      place = where(logical_and(below, within), last + 1, place);
    }
    return place;
  });
}

Array count_nonzero(const Operand& x, const Axes& axes, bool keepdims) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  return run_as_one("count_nonzero",
                    [&] { return sum(astype(a != 0, DType::kI32), axes, keepdims); });
}

}  // namespace stow
