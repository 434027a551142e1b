// Gamma variables by rejection, and the distributions made of them: declared in random.h.
#include <array>

#include "stowage/api/control.h"
#include "stowage/api/custom_vjp.h"
#include "stowage/api/math.h"
#include "stowage/api/math_internal.h"
#include "stowage/api/nn.h"
#include "stowage/api/random_internal.h"
#include "stowage/api/reduce.h"
#include "stowage/api/special_internal.h"

namespace stow::random {
namespace {

// Two words of a key for each element, the normal number drawn last, and 1 + c times it.
using Draw = std::array<Array, 4>;

// The first normal number x of each key with 1 + c x > 0; only where `wanted`.
Draw positive_draw(const Keys& keys, const Array& wanted, const Array& c) {
  const DType dtype = c.dtype();
  const auto again = [](const Draw& s) { return any(s[3] <= 0); };
  const auto next = [&](const Draw& s) {
    const Keys k{s[0], s[1]};
    const Array open = s[3] <= 0, x = normal_each(child(k, 1), dtype);
    const Keys rest = where_keys(open, child(k, 0), k);
    return Draw{rest.hi, rest.lo, where(open, x, s[2]), where(open, 1.0 + x * c, s[3])};
  };
  const Array minus_one = full(c.shape(), -1, dtype), one = full(c.shape(), 1, dtype);
  return while_loop(again, next,
                    Draw{keys.hi, keys.lo, zeros(c.shape(), dtype), where(wanted, minus_one, one)});
}

// V of Marsaglia and Tsang for each key: a candidate stays until it is accepted.
Array accepted_cube(const Keys& keys, const Array& d, const Array& c) {
  using State = std::array<Array, 5>;  // key, x^2, v^3, u
  const DType dtype = c.dtype();
  const auto rejected = [&](const State& s) {
    const Array &x2 = s[2], &v = s[3], &u = s[4];
    return logical_and(u >= 1.0 - 0.0331 * (x2 * x2),
                       log(u) >= x2 * 0.5 + d * ((1.0 - v) + log(v)));
  };
  const auto next = [&](const State& s) {
    const Keys k{s[0], s[1]};
    const Array open = rejected(s);
    const Draw draw = positive_draw(child(k, 1), open, c);
    const Keys rest = where_keys(open, child(k, 0), k);
    const Array &x = draw[2], &v = draw[3];
    return State{rest.hi, rest.lo, where(open, x * x, s[2]), where(open, v * v * v, s[3]),
                 where(open, uniform_each(child(k, 2), dtype), s[4])};
  };
  const auto all = [&](double value) { return full(c.shape(), value, dtype); };
  return while_loop([&](const State& s) { return any(rejected(s)); }, next,
                    State{keys.hi, keys.lo, all(0), all(1), all(2)})[3];
}

// Below 1 a variable of a + 1 is drawn and scaled by a power of a uniform one.
Array gamma_each(const Keys& keys, const Array& a, bool log_space) {
  const Array large = a >= 1.0;
  const Array d = where(large, a, a + 1.0) - 1.0 / 3;
  const Array c = scalar_constant(1.0 / 3, a.dtype()) / sqrt(d);
  const Array v = accepted_cube(child(keys, 0), d, c);
  const Array u = uniform_each(child(keys, 1), a.dtype());
  if (!log_space) return d * v * where(large, ones_like(a), pow(1.0 - u, 1.0 / a));
  const Array log_u = log1p(-u);
  const Array boost = where(logical_or(large, log_u == 0.0), zeros_like(a), log_u * (1.0 / a));
  return log(d) + log(v) + boost;
}

// The derivative by a of log y, a gamma variable of shape a.
Array log_slope(const Array& a, const Array& log_y) {
  const auto wide = [](const Array& x) { return convert_to(x, DType::kF64); };
  return convert_to(log_gamma_sample_derivative(wide(a), wide(log_y), a.dtype()), a.dtype());
}

Array draw_gamma(const char* name, const Array& key, const Operand& a,
                 const std::optional<Shape>& shape, DType dtype, bool log_space) {
  if (dtype != DType::kF32 && dtype != DType::kF64)
    trace_error_here("[random] expected f32 or f64 for {}, got {}", name, dtype_name(dtype));
  const Array each = spread(name, a, shape_of(name, shape, {&a}), dtype);
  const SourceLocation at = context().site;
  return run_as_one(name, [&] {
    const Array flat = ravel(each);
    const Keys keys = split_keys(key, flat.size());
    const auto drawn = [&](const Array& v) {
      const CallSiteScope here(at);
      return gamma_each(keys, v, log_space);
    };
    const auto forward = [&](const Array& v) {
      const Array y = drawn(v);
      return std::pair(y, std::pair(v, y));
    };
    const auto backward = [&](const std::pair<Array, Array>& residuals, const Array& ct) {
      const CallSiteScope here(at);
      const auto& [v, y] = residuals;
      return ct * (log_space ? log_slope(v, y) : random_gamma_grad(v, y));
    };
    return reshape(custom_vjp(drawn, forward, backward, at)(flat), each.shape().dims());
  });
}

}  // namespace

Array gamma(const Operand& key, const Operand& a, const std::optional<Shape>& shape, DType dtype) {
  const CallSiteScope site(key.at);
  return draw_gamma("gamma", check_key(key), a, shape, dtype, false);
}

Array loggamma(const Operand& key, const Operand& a, const std::optional<Shape>& shape,
               DType dtype) {
  const CallSiteScope site(key.at);
  return draw_gamma("loggamma", check_key(key), a, shape, dtype, true);
}

Array beta(const Operand& key, const Operand& a, const Operand& b,
           const std::optional<Shape>& shape, DType dtype) {
  const CallSiteScope site(key.at);
  const Array k = check_key(key);
  const Shape all = shape_of("beta", shape, {&a, &b});
  return run_as_one("beta", [&] {
    const auto keys = split(k);
    const Array log_a = loggamma(keys[0], a, all, dtype), log_b = loggamma(keys[1], b, all, dtype);
    const Array most = maximum(log_a, log_b);
    const Array x = exp(log_a - most), y = exp(log_b - most);
    return x / (x + y);
  });
}

Array dirichlet(const Operand& key, const Operand& alpha, const std::optional<Shape>& shape,
                DType dtype) {
  const CallSiteScope site(key.at);
  const Array k = check_key(key), a = to_array(alpha);
  if (a.rank() == 0)
    trace_error_here("[random] expected a vector for dirichlet, got {}", to_string(a.type()));
  Dims dims = a.shape().dims();
  if (shape) {
    dims = shape->dims();
    dims.push_back(a.shape().dims().back());
  }
  return run_as_one("dirichlet", [&] { return softmax(loggamma(k, a, Shape(dims), dtype), -1); });
}

Array t(const Operand& key, const Operand& df, const std::optional<Shape>& shape, DType dtype) {
  const CallSiteScope site(key.at);
  const Array k = check_key(key);
  const Array each = spread("t", df, shape_of("t", shape, {&df}), dtype);
  return run_as_one("t", [&] {
    const auto keys = split(k);
    const Array half = each / 2.0;
    return normal(keys[0], each.shape(), dtype) * sqrt(half / gamma(keys[1], half, {}, dtype));
  });
}

Array chisquare(const Operand& key, const Operand& df, const std::optional<Shape>& shape,
                DType dtype) {
  const CallSiteScope site(key.at);
  const Array k = check_key(key);
  const Array each = spread("chisquare", df, shape_of("chisquare", shape, {&df}), dtype);
  return run_as_one("chisquare", [&] { return exp(loggamma(k, each / 2.0, {}, dtype)) * 2.0; });
}

Array f(const Operand& key, const Operand& dfnum, const Operand& dfden,
        const std::optional<Shape>& shape, DType dtype) {
  const CallSiteScope site(key.at);
  const Array k = check_key(key);
  const Shape all = shape_of("f", shape, {&dfnum, &dfden});
  const Array num = spread("f", dfnum, all, dtype), den = spread("f", dfden, all, dtype);
  return run_as_one("f", [&] {
    const auto keys = split(k);
    return chisquare(keys[1], num, {}, dtype) / num / (chisquare(keys[0], den, {}, dtype) / den);
  });
}

Array generalized_normal(const Operand& key, double p, const Shape& shape, DType dtype) {
  const CallSiteScope site(key.at);
  const Array k = check_key(key);
  return run_as_one("generalized_normal", [&] {
    const auto keys = split(k);
    const Array g = gamma(keys[0], 1 / p, shape, dtype);
    return rademacher(keys[1], shape, dtype) * pow(g, 1 / p);
  });
}

Array ball(const Operand& key, int64_t d, double p, const Shape& shape, DType dtype) {
  const CallSiteScope site(key.at);
  const Array k = check_key(key);
  if (d < 0) trace_error_here("[random] expected a ball of 0 dimensions or more, got {}", d);
  return run_as_one("ball", [&] {
    const auto keys = split(k);
    Dims dims = shape.dims();
    dims.push_back(d);
    const Array g = generalized_normal(keys[0], p, Shape(dims), dtype);
    const Array e = exponential(keys[1], shape, dtype);
    return g / expand_dims(pow(sum(pow(abs(g), p), -1) + e, 1 / p), -1);
  });
}

}  // namespace stow::random
