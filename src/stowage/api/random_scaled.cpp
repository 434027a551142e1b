// Distributions with parameters, made of one or two simple draws: declared in random.h.
#include "stowage/api/linalg.h"
#include "stowage/api/math.h"
#include "stowage/api/math_internal.h"
#include "stowage/api/random_internal.h"

namespace stow::random {

Shape shape_of(const char* name, const std::optional<Shape>& shape,
               std::initializer_list<const Operand*> parameters) {
  if (shape) return *shape;
  Shape all;
  for (const Operand* x : parameters)
    all = broadcast_shapes(name, {DType::kF32, all}, {DType::kF32, x->shape()});
  return all;
}

Array spread(const char* name, const Operand& x, const Shape& shape, DType dtype) {
  if (!is_float(dtype))
    trace_error_here("[random] expected a float dtype, got {}", dtype_name(dtype));
  const Array a = to_array(x, {dtype, false});
  if (!(broadcast_shapes(name, a.type(), {dtype, shape}) == shape))
    trace_error_here("[random] expected a parameter of {} that broadcasts to ({}), got {}", name,
                     to_string(shape), to_string(a.type()));
  return broadcast_array(a, shape);
}

Array pareto(const Operand& key, const Operand& b, const std::optional<Shape>& shape, DType dtype) {
  const CallSiteScope site(key.at);
  const Array k = check_key(key);
  const Array each = spread("pareto", b, shape_of("pareto", shape, {&b}), dtype);
  return run_as_one("pareto", [&] { return exp(exponential(k, each.shape(), dtype) / each); });
}

Array rayleigh(const Operand& key, const Operand& scale, const std::optional<Shape>& shape,
               DType dtype) {
  const CallSiteScope site(key.at);
  const Array k = check_key(key);
  const Array each = spread("rayleigh", scale, shape_of("rayleigh", shape, {&scale}), dtype);
  return run_as_one("rayleigh",
                    [&] { return each * sqrt(log(uniform(k, each.shape(), dtype)) * -2.0); });
}

Array weibull_min(const Operand& key, const Operand& scale, const Operand& concentration,
                  const std::optional<Shape>& shape, DType dtype) {
  const CallSiteScope site(key.at);
  const Array k = check_key(key);
  const Shape all = shape_of("weibull_min", shape, {&scale, &concentration});
  const Array s = spread("weibull_min", scale, all, dtype);
  const Array c = spread("weibull_min", concentration, all, dtype);
  return run_as_one("weibull_min",
                    [&] { return pow(-log1p(-uniform(k, all, dtype)), 1.0 / c) * s; });
}

Array lognormal(const Operand& key, const Operand& sigma, const std::optional<Shape>& shape,
                DType dtype) {
  const CallSiteScope site(key.at);
  const Array k = check_key(key);
  const Array each = spread("lognormal", sigma, shape_of("lognormal", shape, {&sigma}), dtype);
  return run_as_one("lognormal", [&] { return exp(normal(k, each.shape(), dtype) * each); });
}

Array wald(const Operand& key, const Operand& mean, const std::optional<Shape>& shape,
           DType dtype) {
  const CallSiteScope site(key.at);
  const Array k = check_key(key);
  const Array m = spread("wald", mean, shape_of("wald", shape, {&mean}), dtype);
  return run_as_one("wald", [&] {
    const auto keys = split(k);
    const Array y = square(normal(keys[0], m.shape(), dtype));
    const Array z = uniform(keys[1], m.shape(), dtype);
    const Array root = sqrt(4.0 * m * y + square(m) * square(y));
    const Array x = m + square(m) * y / 2.0 - m / 2.0 * root;
    return where(z <= m / (m + x), x, square(m) / x);
  });
}

Array triangular(const Operand& key, const Operand& left, const Operand& mode, const Operand& right,
                 const std::optional<Shape>& shape, DType dtype) {
  const CallSiteScope site(key.at);
  const Array k = check_key(key);
  const Shape all = shape_of("triangular", shape, {&left, &mode, &right});
  const Array a = spread("triangular", left, all, dtype);
  const Array c = spread("triangular", mode, all, dtype);
  const Array b = spread("triangular", right, all, dtype);
  return run_as_one("triangular", [&] {
    const Array u = uniform(k, all, dtype);
    const Array low = a + sqrt(u * (b - a) * (c - a));
    const Array high = b - sqrt((1.0 - u) * (b - a) * (b - c));
    return where(u < (c - a) / (b - a), low, high);
  });
}

Array maxwell(const Operand& key, const Shape& shape, DType dtype) {
  const CallSiteScope site(key.at);
  const Array k = check_key(key);
  Dims dims = shape.dims();
  dims.push_back(3);
  return run_as_one("maxwell", [&] { return norm(normal(k, Shape(dims), dtype), -1); });
}

Array double_sided_maxwell(const Operand& key, const Operand& loc, const Operand& scale,
                           const Shape& shape, DType dtype) {
  const CallSiteScope site(key.at);
  const Array k = check_key(key);
  const Shape own = shape_of("double_sided_maxwell", {}, {&loc, &scale});
  // JAX, too, adds a shape to that of the parameters, and that to itself where there is none.
  Dims dims = shape.rank() == 0 ? own.dims() : shape.dims();
  dims.insert(dims.end(), own.begin(), own.end());
  const Shape all(dims);
  const Array l = spread("double_sided_maxwell", loc, all, dtype);
  const Array s = spread("double_sided_maxwell", scale, all, dtype);
  return run_as_one("double_sided_maxwell", [&] {
    const auto keys = split(k);
    return rademacher(keys[1], all, dtype) * maxwell(keys[0], all, dtype) * s + l;
  });
}

}  // namespace stow::random
