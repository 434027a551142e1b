#include "stowage/api/nn.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "stowage/api/indexing.h"
#include "stowage/api/math.h"
#include "stowage/api/math_internal.h"
#include "stowage/api/reduce.h"

namespace stow {
namespace {

// A weight or bias of the last axis.
void check_per_feature(const char* name, const char* what, const std::optional<Array>& w,
                       const Array& x) {
  if (w && (w->rank() != 1 || w->dim(0) != x.dim(-1)))
    trace_error_here("[{}] {} {} does not fit the last axis of {}", name, what,
                     to_string(w->type()), to_string(x.type()));
}

Array float_with_axis(const char* name, const Operand& x) {
  const Array a = to_float_array(x);
  if (a.rank() == 0)
    trace_error_here("[{}] expected an array with an axis, got {}", name, to_string(a.type()));
  return a;
}
// The same, having these axes.
Array float_with_axes(const char* name, const Operand& x, const Axes& axes) {
  const Array a = float_with_axis(name, x);
  normalize_axes(name, axes, a.type(), true);
  return a;
}

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// x less its maximum, and where that is -inf: there is no probability then, the results are NaN,
// and the gradients, of which nothing may divide by 0, are 0.
struct BelowZero {
  Array x, is_void;
};
BelowZero below_zero(const Array& x, const Array& peak) {
  const Array is_void = stop_gradient(peak) == -kInf;
  return {x - where(is_void, 0.0, stop_gradient(peak)), is_void};
}
BelowZero below_zero(const Array& x, const Axes& axes) {
  // An array without elements has no maximum.
  if (x.size() == 0) return {x, full(sum(x, axes, true).shape(), 0, DType::kBool)};
  return below_zero(x, max(x, axes, true));
}
// Likewise of what is true in `where`, the rest being -inf.
BelowZero below_zero(const Array& x, const Axes& axes, const Array& where) {
  const Array peak = max(x, axes, {.keepdims = true, .where = where, .initial = -kInf});
  return below_zero(stow::where(where, x, -kInf), peak);
}

// A row of e over its sum. To add NaN is one step of a row program; to select it would be two
// arrays' in the gradient as well.
Array share(const Array& e, const Array& total, const Array& is_void) {
  return e / where(is_void, 1.0, total) + where(is_void, kNaN, 0.0);
}
Array log_share(const BelowZero& below, const Array& total) {
  return where(below.is_void, kNaN, below.x - log(where(below.is_void, 1.0, total)));
}

}  // namespace

Array relu(const Operand& x) {
  const CallSiteScope site(x.at);
  const Array a =
      x.dtype().dtype == DType::kBool ? convert_to(to_array(x), DType::kI32) : to_array(x);
  return run_as_one("relu", [&] { return where(a <= 0, zeros_like(a), a); });
}

Array silu(const Operand& x) {
  const CallSiteScope site(x.at);
  const Array a = to_float_array(x);
  return run_as_one("silu", [&] { return a * logistic(a); });
}

Array gelu(const Operand& x, bool approximate) {
  const CallSiteScope site(x.at);
  const Array a = to_float_array(x);
  const double root = std::sqrt(2 / std::numbers::pi);
  return run_as_one("gelu", [&] {
    // Not 1 + erf(x), of which nothing is left where x is some -5.
    if (!approximate) return 0.5 * a * erfc(-a * std::sqrt(0.5));
    return a * (0.5 * (1 + tanh(root * (a + 0.044715 * pow(a, 3)))));
  });
}

Array softplus(const Operand& x) {
  const CallSiteScope site(x.at);
  return logaddexp(to_float_array(x), 0.0);
}

Array softmax(const Operand& x, const Axes& axes) {
  const CallSiteScope site(x.at);
  const Array a = float_with_axes("softmax", x, axes);
  return run_as_one("softmax", [&] {
    const BelowZero below = below_zero(a, axes);
    const Array e = exp(below.x);
    return share(e, sum(e, axes, true), below.is_void);
  });
}

Array log_softmax(const Operand& x, const Axes& axes) {
  const CallSiteScope site(x.at);
  const Array a = float_with_axes("log_softmax", x, axes);
  return run_as_one("log_softmax", [&] {
    const BelowZero below = below_zero(a, axes);
    return log_share(below, sum(exp(below.x), axes, true));
  });
}

Array softmax(const Operand& x, const Axes& axes, const Array& where) {
  const CallSiteScope site(x.at);
  const Array a = float_with_axes("softmax", x, axes);
  check_where("softmax", where, a);
  return run_as_one("softmax", [&] {
    const BelowZero below = below_zero(a, axes, where);
    const Array e = exp(below.x), total = sum(e, axes, {.keepdims = true, .where = where});
    return stow::where(where, share(e, total, below.is_void), 0.0);
  });
}

Array log_softmax(const Operand& x, const Axes& axes, const Array& where) {
  const CallSiteScope site(x.at);
  const Array a = float_with_axes("log_softmax", x, axes);
  check_where("log_softmax", where, a);
  return run_as_one("log_softmax", [&] {
    const BelowZero below = below_zero(a, axes, where);
    const Array total = sum(exp(below.x), axes, {.keepdims = true, .where = where});
    return stow::where(where, log_share(below, total), -kInf);
  });
}

Array one_hot(const Operand& indices, int64_t n, DType dtype, int axis) {
  const CallSiteScope site(indices.at);
  const bool floats = is_float(indices.dtype().dtype);
  const Array i = floats ? to_array(indices) : to_indices("one_hot", "indices", indices);
  const auto at = static_cast<int>(normalize_axis("one_hot", axis, i.rank() + 1, i.type()));
  if (n < 0) trace_error_here("[one_hot] expected a number of classes of 0 or more, got {}", n);
  return run_as_one("one_hot", [&] {
    const Array spread = expand_dims(i, at);
    Dims counted(static_cast<size_t>(spread.rank()), 1);
    counted[static_cast<size_t>(at)] = n;
    return astype(spread == iota(Shape(counted), at, i.dtype()), dtype);
  });
}

Array rms_norm(const Operand& x, const std::optional<Array>& weight, double eps) {
  const CallSiteScope site(x.at);
  const Array a = float_with_axis("rms_norm", x);
  check_per_feature("rms_norm", "weight", weight, a);
  return run_as_one("rms_norm", [&] {
    const Array f = at_least_f32(a);
    const Array y = convert_to(f * rsqrt(mean(square(f), -1, true) + eps), a.dtype());
    return weight ? y * *weight : y;
  });
}

Array layer_norm(const Operand& x, const std::optional<Array>& weight,
                 const std::optional<Array>& bias, double eps) {
  const CallSiteScope site(x.at);
  const Array a = float_with_axis("layer_norm", x);
  check_per_feature("layer_norm", "weight", weight, a);
  check_per_feature("layer_norm", "bias", bias, a);
  return run_as_one("layer_norm", [&] {
    const Array f = at_least_f32(a);
    const Array centered = f - mean(f, -1, true);
    Array y = convert_to(centered * rsqrt(mean(square(centered), -1, true) + eps), a.dtype());
    if (weight) y = y * *weight;
    return bias ? y + *bias : y;
  });
}

Array cross_entropy(const Operand& logits, const Operand& targets) {
  const CallSiteScope site(logits.at);
  const Array x = at_least_f32(float_with_axis("cross_entropy", logits));
  const Array t = to_indices("cross_entropy", "targets", targets);
  const Dims lead(x.shape().begin(), x.shape().end() - 1);
  if (t.shape().dims() != lead)
    trace_error_here("[cross_entropy] targets for logits {} must be of shape ({}), got {}",
                     to_string(x.type()), to_string(Shape(lead)), to_string(t.type()));
  return run_as_one("cross_entropy", [&] {
    const Array hit = expand_dims(t, -1) == iota({x.dim(-1)}, 0, t.dtype());
    return logsumexp(x, -1) - sum(where(hit, x, 0.0), -1);
  });
}

}  // namespace stow
