// Distributions made of uniform numbers and of bits: the second half of random.h.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "stowage/api/math.h"
#include "stowage/api/math_internal.h"
#include "stowage/api/random_internal.h"
#include "stowage/api/reduce.h"
#include "stowage/core/scalar.h"

namespace stow::random {
namespace {

// Sorted by random 32-bit keys, often enough that no two elements had equal keys every time.
Array shuffled(Array key, Array x, int64_t axis) {
  const double n = static_cast<double>(std::max<int64_t>(1, x.size()));
  const auto rounds = static_cast<int>(
      std::ceil(3 * std::log(n) / std::log(double{std::numeric_limits<uint32_t>::max()})));
  for (int i = 0; i < rounds; ++i) {
    const auto keys = split(key);
    key = keys[0];
    const Array operands[] = {bits(keys[1], x.shape()), x};
    x = record(OpKind::kSort, AxisParams{axis, false}, operands)[1];
  }
  return x;
}

// The numbers, of 0 to n - 1, that are drawn.
Array drawn(const Array& key, int64_t n, const Shape& shape, const ChoiceOptions& options) {
  const int64_t draws = shape.elems();
  if (n <= 0) trace_error_here("[random] expected at least one element to choose from, got none");
  if (!options.replace && draws > n)
    trace_error_here(
        "[random] expected no more draws than there are without replacement, got {} of {}", draws,
        n);
  if (!options.p) {
    if (options.replace) return randint(key, shape, 0, n);
    return reshape(slice(permutation(key, n), 0, 0, draws), shape.dims());
  }
  const Array p = to_float_array(*options.p);
  if (!(p.shape() == Shape{n}))
    trace_error_here("[random] expected a probability for each of {} elements, got {}", n,
                     to_string(p.type()));
  if (options.replace) {
    const Array sums = cumsum(p, 0);
    return searchsorted(sums, sums[-1] * (1.0 - uniform(key, shape, p.dtype())));
  }
  return reshape(top_k(gumbel(key, {n}, p.dtype()) + log(p), draws).second, shape.dims());
}

double rounded_to(double x, DType dtype) {
  return decode_scalar(dtype, *encode_scalar(dtype, x));
}

// low + a number below `span` (0: any), of two draws; `factor` is 2^bits modulo it.
Array drawn(const Array& key, const Shape& shape, DType words, const Array& low, const Array& span,
            const Array& factor) {
  const auto keys = split(key);
  const Array upper = bits(keys[0], shape, words), lower = bits(keys[1], shape, words);
  const Array offset = rem(rem(upper, span) * factor + rem(lower, span), span);
  return low + astype(offset, low.dtype());
}

}  // namespace

Array truncated_normal(const Operand& key, double low, double high, const Shape& shape,
                       DType dtype) {
  const CallSiteScope site(key.at);
  const Array k = check_key(key);
  if (!is_float(dtype))
    trace_error_here("[random] expected a float dtype, got {}", dtype_name(dtype));
  return run_as_one("truncated_normal", [&] {
    const auto edge = [&](double x) { return scalar_constant(x, dtype); };
    const double root = rounded_to(std::numbers::sqrt2, dtype);
    const auto end = [&](double x) {
      return rounded_to(std::erf(rounded_to(rounded_to(x, dtype) / root, dtype)), dtype);
    };
    const Array u = uniform(k, shape, dtype, end(low), end(high));
    const double inf = std::numeric_limits<double>::infinity();
    return clip(edge(root) * erf_inv(u), nextafter(edge(low), edge(inf)),
                nextafter(edge(high), edge(-inf)));
  });
}

Array exponential(const Operand& key, const Shape& shape, DType dtype) {
  const CallSiteScope site(key.at);
  const Array k = check_key(key);
  return run_as_one("exponential", [&] { return -log1p(-uniform(k, shape, dtype)); });
}

Array laplace(const Operand& key, const Shape& shape, DType dtype) {
  const CallSiteScope site(key.at);
  const Array k = check_key(key);
  return run_as_one("laplace", [&] {
    const Array u = uniform(k, shape, dtype, after_minus_one(dtype), 1);
    return sign(u) * log1p(-abs(u));
  });
}

Array logistic(const Operand& key, const Shape& shape, DType dtype) {
  const CallSiteScope site(key.at);
  const Array k = check_key(key);
  return run_as_one("logistic", [&] {
    const Array u = uniform(k, shape, dtype, smallest_normal(dtype), 1);
    return log(u / (1.0 - u));
  });
}

Array cauchy(const Operand& key, const Shape& shape, DType dtype) {
  const CallSiteScope site(key.at);
  const Array k = check_key(key);
  return run_as_one("cauchy", [&] {
    const double epsilon = 2 * (1 + after_minus_one(dtype));
    const Array u = uniform(k, shape, dtype, epsilon, 1);
    return tan((u - 0.5) * std::numbers::pi);
  });
}

Array rademacher(const Operand& key, const Shape& shape, DType dtype) {
  const CallSiteScope site(key.at);
  const Array k = check_key(key);
  return run_as_one("rademacher",
                    [&] { return astype(2 * astype(bernoulli(k, 0.5, shape), dtype) - 1, dtype); });
}

Array randint(const Operand& key, const Shape& shape, int64_t low, int64_t high, DType dtype) {
  const CallSiteScope site(key.at);
  const Array k = check_key(key);
  if (!is_integer(dtype))
    trace_error_here("[random] expected an integer dtype, got {}", dtype_name(dtype));
  const int64_t least = min_int_value(dtype), most = max_int_value(dtype);
  // Narrow dtypes are drawn as i32, whose range the bounds then lie in.
  const DType drawn_as = dtype_bytes(dtype) < 4 ? DType::kI32 : dtype;
  const bool narrow = drawn_as != dtype, wide = dtype_bytes(drawn_as) == 8;
  const bool beyond = !narrow && high > most;
  low = std::clamp(low, least, most);
  high = std::clamp(high, least, narrow ? most + 1 : most);
  uint64_t span = high <= low ? 1 : static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  if (beyond && high > low) ++span;
  if (!wide) span &= 0xffffffffu;  // 0: every number of the dtype
  const auto remainder_of = [&](uint64_t x) { return span == 0 ? x : x % span; };
  // 2^bits modulo span, from its root.
  uint64_t factor = remainder_of(wide ? uint64_t{1} << 32 : uint64_t{1} << 16);
  factor = wide ? factor * factor : (factor * factor) & 0xffffffffu;
  factor = remainder_of(factor);
  const DType words = wide ? DType::kU64 : DType::kU32;
  return run_as_one("randint", [&] {
    return astype(drawn(k, shape, words, scalar_constant(low, drawn_as),
                        scalar_constant(span, words), scalar_constant(factor, words)),
                  dtype);
  });
}

Array randint(const Operand& key, const Shape& shape, const Array& low, const Array& high,
              DType dtype) {
  const CallSiteScope site(key.at);
  const Array k = check_key(key);
  if (!is_integer(dtype))
    trace_error_here("[random] expected an integer dtype, got {}", dtype_name(dtype));
  for (const Array* bound : {&low, &high})
    if (!is_integer(bound->dtype()))
      trace_error_here("[random] a bound of randint must be of integers, got {}",
                       to_string(bound->type()));
  const DType drawn_as = dtype_bytes(dtype) < 4 ? DType::kI32 : dtype;
  const bool narrow = drawn_as != dtype, wide = dtype_bytes(drawn_as) == 8;
  const DType words = wide ? DType::kU64 : DType::kU32;
  return run_as_one("randint", [&] {
    const auto spread = [&](const Array& x) {
      if (!(broadcast_shapes("randint", x.type(), {x.dtype(), shape}) == shape))
        trace_error_here("[random] bounds {} do not broadcast to ({})", to_string(x.type()),
                         to_string(shape));
      return broadcast_array(x, shape);
    };
    // Bounds of 64 bits of the other signedness are taken as they are.
    const DType counts = wide ? dtype : DType::kI64;
    const auto bounded = [&](const Array& x, int64_t most) {
      const Array v = astype(spread(x), counts);
      return wide ? v
                  : clip(v, scalar_constant(min_int_value(dtype), counts),
                         scalar_constant(most, counts));
    };
    const int64_t most = max_int_value(dtype);
    const Array lowest = bounded(low, most), above = bounded(high, narrow ? most + 1 : most);
    Array size = astype(above - lowest, words);
    if (!narrow && !wide)  // a bound just above the dtype's largest number
      size = where(astype(spread(high), counts) > most, size + 1, size);
    const Array span = where(above > lowest, size, scalar_constant(1, words));
    const Array root =
        rem(scalar_constant(wide ? int64_t{1} << 32 : int64_t{1} << 16, words), span);
    const Array factor = rem(root * root, span);
    return astype(drawn(k, shape, words, astype(lowest, drawn_as), span, factor), dtype);
  });
}

Array permutation(const Operand& key, int64_t n) {
  const CallSiteScope site(key.at);
  const Array k = check_key(key);
  return run_as_one("permutation", [&] { return shuffled(k, arange(n), 0); });
}

Array permutation(const Operand& key, const Array& x, int axis, bool independent) {
  const CallSiteScope site(key.at);
  const Array k = check_key(key);
  const int64_t at = normalize_axis("permutation", axis, x.rank(), x.type());
  return run_as_one("permutation", [&] {
    if (independent || x.rank() == 1) return shuffled(k, x, at);
    const Array order = shuffled(k, arange(x.shape()[static_cast<int>(at)]), 0);
    return take(x, order, static_cast<int>(at), IndexMode::kClip);
  });
}

Array choice(const Operand& key, int64_t n, const Shape& shape, const ChoiceOptions& options) {
  const CallSiteScope site(key.at);
  const Array k = check_key(key);
  if (shape.elems() == 0) return zeros(shape, DType::kI32);
  return run_as_one("choice", [&] { return drawn(k, n, shape, options); });
}

Array choice(const Operand& key, const Array& x, const Shape& shape, const ChoiceOptions& options) {
  const CallSiteScope site(key.at);
  const Array k = check_key(key);
  const auto axis = static_cast<int>(normalize_axis("choice", options.axis, x.rank(), x.type()));
  return run_as_one("choice", [&] {
    if (!options.replace && !options.p && x.rank() > 0) {
      if (shape.elems() > x.shape()[axis])
        trace_error_here(
            "[random] expected no more draws than there are without replacement, got {} of {}",
            shape.elems(), x.shape()[axis]);
      Dims dims = x.shape().dims();
      dims.erase(dims.begin() + axis);
      dims.insert(dims.begin() + axis, shape.begin(), shape.end());
      return reshape(slice(permutation(k, x, axis), axis, 0, shape.elems()), dims);
    }
    return take(x, drawn(k, x.shape()[axis], shape, options), axis, IndexMode::kClip);
  });
}

}  // namespace stow::random
