// Whole numbers by rejection: poisson, binomial, multinomial, geometric, declared in random.h.
#include <array>
#include <limits>

#include "stowage/api/control.h"
#include "stowage/api/math.h"
#include "stowage/api/math_internal.h"
#include "stowage/api/random_internal.h"
#include "stowage/api/reduce.h"
#include "stowage/api/scan.h"
#include "stowage/api/special.h"

namespace stow::random {
namespace {

// Loops below carry a key first and draw from it with one key for all elements.
using State = std::array<Array, 3>;

// Counts the uniform numbers whose product stays above exp(-rate). Source: Knuth.
Array poisson_by_products(const Array& key, const Array& rate) {
  const auto open = [&](const State& s) { return s[2] > -rate; };
  const auto next = [&](const State& s) {
    const auto keys = split(s[0]);
    const Array count = where(open(s), s[1] + 1, s[1]);
    return State{keys[0], count, s[2] + log(uniform(keys[1], rate.shape(), DType::kF32))};
  };
  const State first{key, zeros(rate.shape(), DType::kI32), zeros(rate.shape(), DType::kF32)};
  return while_loop([&](const State& s) { return any(open(s)); }, next, first)[1] - 1;
}

// The draws that both rejections below share: u in (-1/2, 1/2), from which the candidate k is made,
// and v, which accepts or rejects it.
struct Candidate {
  Array u, v, reach;  // reach: 1/2 - |u|
};
Candidate candidate(const std::vector<Array>& keys, const Shape& shape, DType dtype) {
  const Array u = uniform(keys[1], shape, dtype) - 0.5;
  return {u, uniform(keys[2], shape, dtype), 0.5 - abs(u)};
}

// Source: Hormann 1993, the transformed rejection of large rates.
Array poisson_by_rejection(const Array& key, const Array& rate) {
  const Array log_rate = log(rate), b = 0.931 + 2.53 * sqrt(rate), a = -0.059 + 0.02483 * b;
  const Array inv_alpha = 1.1239 + 1.1328 / (b - 3.4), v_r = 0.9277 - 3.6224 / (b - 2.0);
  const auto next = [&](const State& s) {
    const std::vector<Array> keys = random::split(s[0], 3);
    const auto [u, v, reach] = candidate(keys, rate.shape(), rate.dtype());
    const Array k = floor((2.0 * a / reach + b) * u + rate + 0.43);
    const Array bound = log(v * inv_alpha / (a / (reach * reach) + b));
    const Array density = -rate + k * log_rate - lgamma(k + 1.0);
    const Array quick = logical_and(reach >= 0.07, v <= v_r);
    const Array no = logical_or(k < 0.0, logical_and(reach<0.013, v> reach));
    const Array yes = logical_or(quick, logical_and(logical_not(no), bound <= density));
    return State{keys[0], where(yes, k, s[1]), logical_or(s[2], yes)};
  };
  // An infinite rate would never be accepted.
  const State first{key, full(rate.shape(), -1, rate.dtype()), isinf(rate)};
  return while_loop([](const State& s) { return any(logical_not(s[2])); }, next, first)[1];
}

// Counts the geometric numbers whose sum is at most `count`.
Array binomial_by_sums(const Array& key, const Array& count, const Array& p) {
  const Array log_rest = log1p(-p);
  const auto open = [&](const State& s) { return s[2] <= count; };
  const auto next = [&](const State& s) {
    const auto keys = split(s[0]);
    const Array number = where(open(s), s[1] + 1.0, s[1]);
    const Array step = ceil(log(uniform(keys[0], p.shape(), p.dtype())) / log_rest);
    return State{keys[1], number, s[2] + step};
  };
  const State first{key, zeros(p.shape(), p.dtype()), zeros(p.shape(), p.dtype())};
  return while_loop([&](const State& s) { return any(open(s)); }, next, first)[1] - 1.0;
}

// log(k!) without Stirling's approximation of it: a table up to 9, then a series.
Array stirling_tail(const Array& k) {
  static constexpr std::array<double, 10> kTail = {
      0.0810614667953272,  0.0413406959554092, 0.0276779256849983, 0.02079067210376509,
      0.0166446911898211,  0.0138761288230707, 0.0118967099458917, 0.0104112652619720,
      0.00925546218271273, 0.00833056343336287};
  const Array table = Array::from(std::span<const double>(kTail), {10}, k.dtype());
  const Array small = clamp(0.0, k, 9.0), square = (small + 1.0) * (small + 1.0);
  const Array series = (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (small + 1.0);
  const Array looked_up = take(table, astype(floor(small), DType::kI32), 0, IndexMode::kClip);
  return where(k <= 9.0, looked_up, series);
}

// Source: Hormann 1993, BTRS.
Array binomial_by_rejection(const Array& key, const Array& count, const Array& p) {
  const Array deviation = sqrt(count * p * (1.0 - p)), b = 1.15 + 2.53 * deviation;
  const Array a = -0.0873 + 0.0248 * b + 0.01 * p, c = count * p + 0.5, v_r = 0.92 - 4.2 / b;
  const Array r = p / (1.0 - p), alpha = (2.83 + 5.1 / b) * deviation;
  const Array m = floor((count + 1.0) * p);
  const auto density = [&](const Array& k) {
    return (m + 0.5) * log((m + 1.0) / (r * (count - m + 1.0))) +
           (count + 1.0) * log((count - m + 1.0) / (count - k + 1.0)) +
           (k + 0.5) * log(r * (count - k + 1.0) / (k + 1.0)) + stirling_tail(m) +
           stirling_tail(count - m) - stirling_tail(k) - stirling_tail(count - k);
  };
  const auto next = [&](const State& s) {
    const std::vector<Array> keys = random::split(s[0], 3);
    const auto [u, v, reach] = candidate(keys, p.shape(), p.dtype());
    const Array k = floor((2.0 * a / reach + b) * u + c);
    const Array quick = logical_and(reach >= 0.07, v <= v_r);
    const Array no = logical_or(k<0.0, k> count);
    const Array bound = log(v * alpha / (a / (reach * reach) + b));
    const Array yes = logical_or(quick, logical_and(logical_not(no), bound <= density(k)));
    return State{keys[0], where(yes, k, s[1]), logical_or(s[2], yes)};
  };
  const State first{key, full(p.shape(), -1, p.dtype()), isinf(count)};
  return while_loop([](const State& s) { return any(logical_not(s[2])); }, next, first)[1];
}

// Draws counts of the rarer outcome. Unusual counts and probabilities are settled here.
Array binomial_each(const Array& key, const Array& given, const Array& p) {
  const auto all = [&](double v) { return full_like(p, v); };
  const Array rare = p < 0.5, q = where(rare, p, 1.0 - p);
  const Array no_count = logical_or(isnan(given), given < 0.0), endless = isinf(given);
  const Array no_chance = logical_or(isnan(q), q < 0.0);
  const Array chance = where(no_chance, all(0.01), q);
  const Array few = logical_or(no_count, given * chance <= 10.0), count = floor(given);
  const Array drawn =
      where(few, binomial_by_sums(key, where(few, count, all(0)), chance),
            binomial_by_rejection(key, where(few, all(1e4), count), where(few, all(0.5), chance)));
  const Array invalid = logical_or(no_chance, no_count);
  Array result = where(invalid, all(std::numeric_limits<double>::quiet_NaN()), drawn);
  result = where(logical_and(endless, logical_not(invalid)),
                 all(std::numeric_limits<double>::infinity()), result);
  const Array keep = logical_or(logical_or(rare, no_count), logical_or(isnan(q), endless));
  return where(keep, result, count - result);
}

void check_wide_float(const char* name, DType dtype) {
  if (dtype != DType::kF32 && dtype != DType::kF64)
    trace_error_here("[random] expected f32 or f64 for {}, got {}", name, dtype_name(dtype));
}

}  // namespace

Array poisson(const Operand& key, const Operand& lam, const std::optional<Shape>& shape,
              DType dtype) {
  const CallSiteScope site(key.at);
  const Array k = check_key(key);
  if (!is_integer(dtype))
    trace_error_here("[random] expected an integer dtype, got {}", dtype_name(dtype));
  const Array rate =
      stop_gradient(spread("poisson", lam, shape_of("poisson", shape, {&lam}), DType::kF32));
  return run_as_one("poisson", [&] {
    const Array few = logical_or(isnan(rate), rate < 10.0);
    const Array drawn =
        where(few, poisson_by_products(k, where(few, rate, zeros_like(rate))),
              astype(poisson_by_rejection(k, where(few, full_like(rate, 1e5), rate)), DType::kI32));
    return astype(where(rate == 0.0, zeros_like(drawn), drawn), dtype);
  });
}

Array binomial(const Operand& key, const Operand& n, const Operand& p,
               const std::optional<Shape>& shape, DType dtype) {
  const CallSiteScope site(key.at);
  const Array k = check_key(key);
  check_wide_float("binomial", dtype);
  const Shape all = shape_of("binomial", shape, {&n, &p});
  const Array chance = to_float_array(p);
  const DType wide = at_least_f32(chance).dtype();
  const Array count = spread("binomial", n, all, wide), each = spread("binomial", p, all, wide);
  return run_as_one("binomial", [&] { return convert_to(binomial_each(k, count, each), dtype); });
}

Array multinomial(const Operand& key, const Operand& n, const Operand& p,
                  const std::optional<Shape>& shape, DType dtype) {
  const CallSiteScope site(key.at);
  const Array k = check_key(key);
  check_wide_float("multinomial", dtype);
  const Shape all = shape.value_or(p.shape());
  if (all.rank() == 0)
    trace_error_here("[random] expected a vector of probabilities, got shape ()");
  Dims outer = all.dims();
  outer.pop_back();
  const DType wide = at_least_f32(to_float_array(p)).dtype();
  const Array count = spread("multinomial", n, Shape(outer), wide);
  const Array chances = moveaxis(spread("multinomial", p, all, wide), -1, 0);
  return run_as_one("multinomial", [&] {
    const Array left = cumsum(chances, 0, true);
    const Array ratios = chances / where(left == 0.0, ones_like(left), left);
    const auto step = [&](const Array& remaining, const std::pair<Array, Array>& x) {
      const Array drawn = binomial(x.second, remaining, clip(x.first, 0.0, 1.0), {}, wide);
      return std::pair(remaining - drawn, drawn);
    };
    const std::pair xs(ratios, split_array(k, ratios.shape()[0]));
    return convert_to(moveaxis(scan(step, count, xs).second, 0, -1), dtype);
  });
}

Array geometric(const Operand& key, const Operand& p, const std::optional<Shape>& shape,
                DType dtype) {
  const CallSiteScope site(key.at);
  const Array k = check_key(key);
  if (!is_integer(dtype))
    trace_error_here("[random] expected an integer dtype, got {}", dtype_name(dtype));
  const DType own = to_float_array(p).dtype();
  const Array chance = spread("geometric", p, shape_of("geometric", shape, {&p}), own);
  return run_as_one("geometric", [&] {
    const Array u = uniform(k, chance.shape(), chance.dtype());
    const Array log_u = log(where(u == 0.0, ones_like(u), u));
    return astype(floor(log_u / log1p(-chance)) + 1.0, dtype);
  });
}

}  // namespace stow::random
