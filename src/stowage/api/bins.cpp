// histogram, digitize, interp, isin, unique: the second half of counting.h.
#include "stowage/api/at.h"
#include "stowage/api/counting.h"
#include "stowage/api/math.h"
#include "stowage/api/math_internal.h"

namespace stow {
namespace {

// bins + 1 numbers from low to high, as jnp.linspace computes them.
Array equal_bins(const Array& low, const Array& high, int64_t bins) {
  const Array step = astype(arange(bins), low.dtype()) / static_cast<double>(bins);
  return concatenate({low * (1.0 - step) + high * step, reshape(high, {1})});
}

Array edges_of(const Array& x, int64_t bins, const HistogramOptions& options) {
  const auto given = [&](double v) { return scalar_constant(v, x.dtype()); };
  const Array low = options.range ? given(options.range->first) : min(x);
  const Array high = options.range ? given(options.range->second) : max(x);
  const Array widen = where(low == high, scalar_constant(0.5, x.dtype()), 0.0);
  return equal_bins(low - widen, high + widen, bins);
}

Array counts_of(const Array& x, const Array& edges, const HistogramOptions& options) {
  const Array each = options.weights ? ravel(convert_to(*options.weights, x.dtype()))
                                     : ones({x.size()}, x.dtype());
  const Array flat = ravel(x), found = searchsorted(edges, flat, true);
  const Array bin = where(flat == edges[-1], static_cast<int32_t>(edges.size() - 1), found);
  const Array counts =
      slice(zeros(edges.shape(), x.dtype()).at({bin}).add(each), 0, 1, edges.size());
  if (!options.density) return counts;
  return counts / diff(edges) / sum(counts);
}

Array checked(const Operand& x, const HistogramOptions& options) {
  const Array given = to_float_array(x);
  if (!options.weights) return with_weak(given, false);
  if (!(options.weights->shape() == given.shape()))
    trace_error_here("[histogram] expected weights of the shape of the array, got {} for {}",
                     to_string(options.weights->type()), to_string(given.type()));
  return with_weak(convert_to(given, float_dtype(x, *options.weights).dtype), false);
}

std::pair<Array, Array> pair_of(const std::vector<Array>& two) {
  return {two[0], two[1]};
}

}  // namespace

std::pair<Array, Array> histogram(const Operand& x, int64_t bins, const HistogramOptions& options) {
  const CallSiteScope site(x.at);
  if (bins < 1) trace_error_here("[histogram] expected at least 1 bin, got {}", bins);
  const Array a = checked(x, options);
  if (a.size() == 0 && !options.range)
    trace_error_here("[histogram] expected elements or a range, got {}", to_string(a.type()));
  return pair_of(traced_or_run("histogram", [&] {
    const Array edges = edges_of(a, bins, options);
    return std::vector{counts_of(a, edges, options), edges};
  }));
}

std::pair<Array, Array> histogram(const Operand& x, const Array& edges,
                                  const HistogramOptions& options) {
  const CallSiteScope site(x.at);
  const Array a = checked(x, options);
  if (edges.rank() != 1 || edges.size() < 2)
    trace_error_here("[histogram] edges must be a vector of 2 or more, got {}",
                     to_string(edges.type()));
  if (options.range) trace_error_here("[histogram] a range has no effect with edges; leave it out");
  return pair_of(traced_or_run("histogram", [&] {
    const Array all = convert_to(edges, a.dtype());
    return std::vector{counts_of(a, all, options), all};
  }));
}

Array digitize(const Operand& x, const Array& bins, bool right) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  if (bins.rank() != 1)
    trace_error_here("[digitize] bins must be a vector, got {}", to_string(bins.type()));
  const auto n = static_cast<int32_t>(bins.size());
  return run_as_one("digitize", [&] {
    if (n == 0) return zeros(a.shape(), DType::kI32);
    const Array rises = bins[-1] >= bins[0];
    const Array found = searchsorted(where(rises, bins, flip(bins)), a, !right);
    return where(rises, found, n - found);
  });
}

Array interp(const Operand& x, const Operand& xp, const Operand& fp,
             const std::optional<double>& left, const std::optional<double>& right) {
  const CallSiteScope site(x.at);
  const WeakDType dtype = float_dtype(x, xp);
  const Array a = to_array(x, dtype), p = to_array(xp, dtype), f = to_float_array(fp);
  if (p.rank() != 1 || f.rank() != 1 || p.size() != f.size() || p.size() == 0)
    trace_error_here("[interp] the points must be two vectors of one extent, got {} and {}",
                     to_string(p.type()), to_string(f.type()));
  const auto n = static_cast<int32_t>(p.size());
  return run_as_one("interp", [&] {
    const auto at = [](const Array& v, const Array& i) { return take(v, i, 0, IndexMode::kClip); };
    const Array i = clip(searchsorted(p, a, true), std::min(1, n - 1), n - 1);
    const Array before = maximum(i - 1, 0);
    const Array dx = at(p, i) - at(p, before);
    const Array base = at(f, before), rise = at(f, i) - base;
    // Points that lie on each other have no slope between them.
    const Array flat = dx == 0;
    const Array slope = (a - at(p, before)) / where(flat, ones_like(dx), dx);
    Array y = where(flat, base, base + slope * rise);
    y = where(a < p[0], left ? scalar_constant(*left, y.dtype()) : f[0], y);
    return where(a > p[-1], right ? scalar_constant(*right, y.dtype()) : f[-1], y);
  });
}

Array isin(const Operand& x, const Operand& tests, bool invert) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x), t = to_array(tests);
  return run_as_one("isin", [&] {
    const Array found = any(expand_dims(a, -1) == ravel(t), -1);
    return invert ? logical_not(found) : found;
  });
}

Unique unique(const Operand& x, int64_t size, const std::optional<double>& fill_value) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  if (size < 0) trace_error_here("[unique] expected a size of 0 or more, got {}", size);
  const auto n = static_cast<int32_t>(a.size());
  if (n == 0 && size > 0 && !fill_value)
    trace_error_here("[unique] expected an element to fill with, got {}; give a fill_value",
                     to_string(a.type()));
  const std::vector<Array> parts = traced_or_run("unique", [&]() -> std::vector<Array> {
    const auto filling = [&] {
      return full_like(zeros({size}, a.dtype()), fill_value.value_or(0));
    };
    if (n == 0)
      return {filling(), zeros({size}, DType::kI32), zeros(a.shape(), DType::kI32),
              zeros({size}, DType::kI32)};
    const std::vector<Array> sorted = sort({ravel(a), arange(n)}, 0, 1);
    const Array &values = sorted[0], &from = sorted[1];
    const Array one = slice(values, 0, 1, n), other = slice(values, 0, 0, n - 1);
    const Array differs =
        logical_and(one != other, logical_not(logical_and(isnan(one), isnan(other))));
    const Array is_first = concatenate({full({1}, true), differs});
    const Array number = cumsum(astype(is_first, DType::kI32), 0) - 1;
    const Array firsts = flatnonzero(is_first, size + 1, n);
    const Array starts = slice(firsts, 0, 0, size);
    const Array there = starts < n;
    const Array place = where(there, starts, 0);
    Array unique_values = take(values, place, 0, IndexMode::kClip);
    if (fill_value) unique_values = where(there, unique_values, filling());
    const Array inverse = zeros({n}, DType::kI32).at({from}).set(number);
    return {unique_values, take(from, place, 0, IndexMode::kClip),
            reshape(inverse, a.shape().dims()), diff(firsts)};
  });
  return {parts[0], parts[1], parts[2], parts[3]};
}

}  // namespace stow
