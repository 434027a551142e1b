// Activations: the second half of nn.h.
#include "stowage/api/math.h"
#include "stowage/api/math_internal.h"
#include "stowage/api/nn.h"
#include "stowage/api/reduce.h"

namespace stow {
namespace {

// `f` of x as a float array, as one program outside traces.
template <typename F>
Array activation(const char* name, const Operand& x, const F& f) {
  const CallSiteScope site(x.at);
  const Array a = to_float_array(x);
  return run_as_one(name, [&] { return f(a); });
}

}  // namespace

Array relu6(const Operand& x) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  // No gradient at the bounds and at NaN.
  return run_as_one("relu6", [&] {
    const Array bounded = minimum(maximum(stop_gradient(a), 0), 6.0);
    return where(logical_and(a > 0, a < 6), a, bounded);
  });
}

Array leaky_relu(const Operand& x, double slope) {
  return activation("leaky_relu", x, [&](const Array& a) { return where(a >= 0, a, slope * a); });
}

// The exponential sees no large number, so that no infinity meets a zero gradient.
Array elu(const Operand& x, double alpha) {
  return activation("elu", x, [&](const Array& a) {
    const Array below = where(a > 0, zeros_like(a), a);
    return where(a > 0, a, alpha * expm1(below));
  });
}

Array selu(const Operand& x) {
  constexpr double kAlpha = 1.6732632423543772848, kScale = 1.0507009873554804934;
  return activation("selu", x, [&](const Array& a) { return kScale * elu(a, kAlpha); });
}

Array celu(const Operand& x, double alpha) {
  return activation("celu", x, [&](const Array& a) {
    return maximum(a, 0.0) + alpha * expm1(minimum(a, 0.0) / alpha);
  });
}

Array hard_tanh(const Operand& x) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  return run_as_one("hard_tanh", [&] { return where(a > 1, 1, where(a < -1, -1, a)); });
}

Array hard_sigmoid(const Operand& x) {
  return activation("hard_sigmoid", x, [](const Array& a) { return relu6(a + 3.0) / 6.0; });
}
Array hard_silu(const Operand& x) {
  return activation("hard_silu", x, [](const Array& a) { return a * hard_sigmoid(a); });
}
Array mish(const Operand& x) {
  return activation("mish", x, [](const Array& a) { return a * tanh(softplus(a)); });
}
Array soft_sign(const Operand& x) {
  return activation("soft_sign", x, [](const Array& a) { return a / (abs(a) + 1.0); });
}
Array squareplus(const Operand& x, double b) {
  return activation("squareplus", x,
                    [&](const Array& a) { return 0.5 * (a + sqrt(square(a) + b)); });
}
Array sparse_plus(const Operand& x) {
  return activation("sparse_plus", x, [](const Array& a) {
    const Array curve = square(a + 1.0) / 4.0;
    return where(a <= -1, zeros_like(a), where(a >= 1, a, curve));
  });
}
Array sparse_sigmoid(const Operand& x) {
  return activation("sparse_sigmoid", x,
                    [](const Array& a) { return 0.5 * clip(a + 1.0, 0.0, 2.0); });
}
Array log_sigmoid(const Operand& x) {
  return activation("log_sigmoid", x, [](const Array& a) { return -softplus(-a); });
}

Array glu(const Operand& x, int axis) {
  const CallSiteScope site(x.at);
  const Array a = to_float_array(x);
  const auto i = static_cast<int>(normalize_axis("glu", axis, a.rank(), a.type()));
  if (a.shape()[i] % 2 != 0)
    trace_error_here("[glu] expected an even extent along axis {}, got {}", axis,
                     to_string(a.type()));
  return run_as_one("glu", [&] {
    const std::vector<Array> halves = split(a, 2, i);
    return halves[0] * sigmoid(halves[1]);
  });
}

Array standardize(const Operand& x, const Axes& axes, double eps) {
  return activation("standardize", x, [&](const Array& a) {
    const Array m = mean(a, axes, true);
    return (a - m) * rsqrt(var(a, axes, 0, true) + eps);
  });
}

}  // namespace stow
