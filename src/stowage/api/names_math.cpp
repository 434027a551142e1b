// The elementwise functions and reductions of names.h.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "stowage/api/custom_vjp.h"
#include "stowage/api/indexing.h"
#include "stowage/api/linalg.h"
#include "stowage/api/math_internal.h"
#include "stowage/api/names.h"
#include "stowage/api/special.h"

namespace stow {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// Layout of a float in a word of integers.
struct Layout {
  DType words;
  int mantissa, bias;
  double smallest_normal;
};
Layout layout_of(DType dtype) {
  if (dtype == DType::kF64) return {DType::kI64, 52, 1023, 0x1p-1022};
  return {DType::kI32, 23, 127, 0x1p-126};
}

// 2^n, n of the integers of the layout and within the normal numbers.
Array exact_power_of_two(const Array& n, DType dtype) {
  const Layout f = layout_of(dtype);
  const auto word = [&](int64_t v) { return scalar_constant(v, f.words); };
  return bitcast_convert_type((n + word(f.bias)) << word(f.mantissa), dtype);
}

struct Parts {
  Array fraction, exponent;  // exponent of the integers of the layout
};
// Splits an f32 or f64. The fraction is a product of x, so that it has a gradient.
Parts parts_of(const Array& x) {
  const DType dtype = x.dtype();
  const Layout f = layout_of(dtype);
  const auto word = [&](int64_t v) { return scalar_constant(v, f.words); };
  const Array fixed = stop_gradient(x);
  const Array small = abs(fixed) < f.smallest_normal;
  const Array normal = where(small, fixed * std::ldexp(1.0, f.mantissa + 1), fixed);
  const Array bits = bitcast_convert_type(abs(normal), f.words) >> word(f.mantissa);
  const Array found = bits - word(f.bias - 1) - where(small, word(f.mantissa + 1), word(0));
  const Array none = logical_or(fixed == 0.0, logical_not(isfinite(fixed)));
  const Array exponent = where(none, word(0), found);
  // In two steps, as 2^-exponent may be below the normal numbers.
  const Array half = exponent >> word(1);
  const Array fraction =
      x * exact_power_of_two(-half, dtype) * exact_power_of_two(half - exponent, dtype);
  return {fraction, exponent};
}

// x 2^n of f32 or f64, n of the integers of the layout.
Array scaled(const Array& x, const Array& n) {
  const DType dtype = x.dtype();
  const Layout f = layout_of(dtype);
  const auto word = [&](int64_t v) { return scalar_constant(v, f.words); };
  const int64_t reach = f.bias - 27, all = 4 * reach;
  const Parts p = parts_of(x);
  const Array kept = minimum(maximum(n, word(-all)), word(all));
  const Array to = minimum(maximum(p.exponent + kept, word(-2 * reach)), word(2 * reach));
  // The first step is exact: only the second can leave the normal numbers.
  const Array first =
      where(to < word(-reach), word(-reach), where(to > word(reach), word(reach), word(0)));
  return p.fraction * exact_power_of_two(first, dtype) * exact_power_of_two(to - first, dtype);
}

// The extreme of what is no NaN, and -1 where nothing is.
Array nan_extreme(const char* name, const Operand& x, std::optional<int> axis, bool keepdims,
                  double worst, Array (*extreme)(const Operand&, std::optional<int>, bool)) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  if (!is_float(a.dtype())) return extreme(a, axis, keepdims);
  return run_as_one(name, [&] {
    const Array none = all(isnan(a), axis ? Axes(*axis) : Axes(), keepdims);
    return where(none, -1, extreme(where(isnan(a), full_like(a, worst), a), axis, keepdims));
  });
}

}  // namespace

Array absolute(const Operand& x) {
  return abs(x);
}
Array fabs(const Operand& x) {
  const CallSiteScope site(x.at);
  return abs(to_float_array(x));
}
Array positive(const Operand& x) {
  const CallSiteScope site(x.at);
  return to_array(x);
}
Array true_divide(const Operand& a, const Operand& b) {
  return divide(a, b);
}
Array float_power(const Operand& a, const Operand& b) {
  const CallSiteScope site(a.at);
  const WeakDType dtype = float_dtype(a, b);
  return pow(to_array(a, dtype), to_array(b, dtype));
}
Array equal(const Operand& a, const Operand& b) {
  return a == b;
}
Array not_equal(const Operand& a, const Operand& b) {
  return a != b;
}
Array less(const Operand& a, const Operand& b) {
  return a < b;
}
Array less_equal(const Operand& a, const Operand& b) {
  return a <= b;
}
Array greater(const Operand& a, const Operand& b) {
  return a > b;
}
Array greater_equal(const Operand& a, const Operand& b) {
  return a >= b;
}
Array bitwise_and(const Operand& a, const Operand& b) {
  return a & b;
}
Array bitwise_or(const Operand& a, const Operand& b) {
  return a | b;
}
Array bitwise_xor(const Operand& a, const Operand& b) {
  return a ^ b;
}
Array bitwise_not(const Operand& x) {
  return ~x;
}
Array invert(const Operand& x) {
  return ~x;
}
Array left_shift(const Operand& a, const Operand& b) {
  return a << b;
}
Array right_shift(const Operand& a, const Operand& b) {
  return a >> b;
}
std::pair<Array, Array> divmod(const Operand& a, const Operand& b) {
  return {floor_divide(a, b), remainder(a, b)};
}

Array fmax(const Operand& a, const Operand& b) {
  const CallSiteScope site(a.at);
  return run_as_one("fmax", [&] { return where(logical_or(a > b, isnan(b)), a, b); });
}
Array fmin(const Operand& a, const Operand& b) {
  const CallSiteScope site(a.at);
  return run_as_one("fmin", [&] { return where(logical_or(a < b, isnan(b)), a, b); });
}

Array heaviside(const Operand& x, const Operand& at_zero) {
  const CallSiteScope site(x.at);
  const WeakDType dtype = float_dtype(x, at_zero);
  const Array a = to_array(x, dtype), middle = to_array(at_zero, dtype);
  return run_as_one("heaviside", [&] {
    const Array rest = where(isnan(a), a, middle);
    return where(a < 0, zeros_like(rest), where(a > 0, ones_like(rest), rest));
  });
}

Array logaddexp2(const Operand& a, const Operand& b) {
  const CallSiteScope site(a.at);
  const WeakDType dtype = float_dtype(a, b);
  const Array x = to_array(a, dtype), y = to_array(b, dtype);
  return run_as_one("logaddexp2", [&] {
    return logaddexp(x * std::numbers::ln2, y * std::numbers::ln2) / std::numbers::ln2;
  });
}

Array sinc(const Operand& x) {
  const CallSiteScope site(x.at);
  const Array a = to_float_array(x);
  return run_as_one("sinc", [&] {
    const Array turn = a * std::numbers::pi, near = abs(a) < 1e-4;
    const Array safe = where(near, ones_like(turn), turn);
    // Its series near 0, for the derivatives there; elsewhere it must not overflow.
    const Array squared = square(where(near, turn, zeros_like(turn)));
    return where(near, 1 - squared * (1.0 / 6) * (1 - squared * (1.0 / 20)), sin(safe) / safe);
  });
}

Array deg2rad(const Operand& x) {
  const CallSiteScope site(x.at);
  return to_float_array(x) * (std::numbers::pi / 180);
}
Array radians(const Operand& x) {
  return deg2rad(x);
}
Array rad2deg(const Operand& x) {
  const CallSiteScope site(x.at);
  return to_float_array(x) * (180 / std::numbers::pi);
}
Array degrees(const Operand& x) {
  return rad2deg(x);
}

Array ldexp(const Operand& x, const Operand& n) {
  const CallSiteScope site(x.at);
  const Array a = to_float_array(x);
  if (is_float(n.dtype().dtype))
    trace_error_here("[ldexp] the exponent must be an integer, got {}",
                     to_string(ArrayType{n.dtype().dtype, n.shape()}));
  const Array by = to_array(n);
  return run_as_one("ldexp", [&] {
    const Shape shape = broadcast_shapes("ldexp", a.type(), by.type());
    const Array wide = broadcast_array(at_least_f32(a), shape);
    const DType words = layout_of(wide.dtype()).words;
    // Beyond any exponent more changes nothing, but would not fit a word.
    Array within = by;
    if (dtype_bytes(by.dtype()) >= 4) {
      within = minimum(within, scalar_constant(5000, by.dtype()));
      if (is_signed_int(by.dtype())) within = maximum(within, scalar_constant(-5000, by.dtype()));
    }
    const Array whole = broadcast_array(convert_to(within, words), shape);
    const auto forward = [](const Array& v, const Array& k) { return std::pair(scaled(v, k), k); };
    const auto backward = [](const Array& k, const Array& ct) {
      return std::tuple(scaled(ct, k), Array());
    };
    const Array value = custom_vjp(scaled, forward, backward, x.at)(wide, whole);
    return with_weak(convert_to(value, a.dtype()), false);
  });
}

std::pair<Array, Array> frexp(const Operand& x) {
  const CallSiteScope site(x.at);
  const Array a = to_float_array(x);
  const std::vector<Array> both = traced_or_run("frexp", [&] {
    const Parts p = parts_of(at_least_f32(a));
    return std::vector<Array>{convert_to(p.fraction, a.dtype()), astype(p.exponent, DType::kI32)};
  });
  return {both[0], both[1]};
}

std::pair<Array, Array> modf(const Operand& x) {
  const CallSiteScope site(x.at);
  const Array a = to_float_array(x);
  const std::vector<Array> both = traced_or_run("modf", [&] {
    const Array whole = trunc(a);
    return std::vector<Array>{a - whole, whole};
  });
  return {both[0], both[1]};
}

Array isposinf(const Operand& x) {
  const CallSiteScope site(x.at);
  return run_as_one("isposinf", [&] { return to_float_array(x) == kInf; });
}
Array isneginf(const Operand& x) {
  const CallSiteScope site(x.at);
  return run_as_one("isneginf", [&] { return to_float_array(x) == -kInf; });
}

Array allclose(const Operand& a, const Operand& b, double rtol, double atol, bool equal_nan) {
  const CallSiteScope site(a.at);
  return run_as_one("allclose", [&] { return all(isclose(a, b, rtol, atol, equal_nan)); });
}
Array array_equal(const Operand& a, const Operand& b, bool equal_nan) {
  const CallSiteScope site(a.at);
  if (!(a.shape() == b.shape())) return full(Shape{}, false);
  return run_as_one("array_equal", [&] {
    const Array same = a == b;
    return all(equal_nan ? logical_or(same, logical_and(isnan(a), isnan(b))) : same);
  });
}
Array array_equiv(const Operand& a, const Operand& b) {
  const CallSiteScope site(a.at);
  const int rank = std::min(a.rank(), b.rank());
  for (int i = 1; i <= rank; ++i) {
    const int64_t n = a.shape()[a.rank() - i], m = b.shape()[b.rank() - i];
    if (n != m && n != 1 && m != 1) return full(Shape{}, false);
  }
  return run_as_one("array_equiv", [&] { return all(a == b); });
}

Array select(const std::vector<Array>& conditions, const std::vector<Array>& choices,
             const Operand& otherwise, SourceLocation at) {
  const CallSiteScope site(at);
  if (conditions.empty() || conditions.size() != choices.size())
    trace_error_here("[select] expected as many conditions as choices, at least one, got {} and {}",
                     conditions.size(), choices.size());
  WeakDType dtype = otherwise.dtype();
  for (const Array& choice : choices) dtype = promote(dtype, Operand(choice).dtype());
  return run_as_one("select", [&] {
    Array result = to_array(otherwise, dtype);
    for (size_t i = conditions.size(); i-- > 0;)
      result = where(conditions[i], to_array(choices[i], dtype), result);
    return result;
  });
}

Array polyval(const Operand& p, const Operand& x) {
  const CallSiteScope site(p.at);
  const WeakDType dtype = promote(p.dtype(), x.dtype());
  const Array coefficients = to_array(p, dtype), a = to_array(x, dtype);
  if (coefficients.rank() == 0)
    trace_error_here("[polyval] the coefficients must have an axis, got {}",
                     to_string(coefficients.type()));
  return run_as_one("polyval", [&] {
    Array y = zeros_like(a);
    for (int64_t i = 0; i < coefficients.dim(0); ++i) y = y * a + coefficients[i];
    return y;
  });
}

Array amax(const Operand& x, const Axes& axes, bool keepdims) {
  return max(x, axes, keepdims);
}
Array amin(const Operand& x, const Axes& axes, bool keepdims) {
  return min(x, axes, keepdims);
}
Array nanargmax(const Operand& x, std::optional<int> axis, bool keepdims) {
  return nan_extreme("nanargmax", x, axis, keepdims, -kInf, argmax);
}
Array nanargmin(const Operand& x, std::optional<int> axis, bool keepdims) {
  return nan_extreme("nanargmin", x, axis, keepdims, kInf, argmin);
}
Array nancumsum(const Operand& x, std::optional<int> axis) {
  const CallSiteScope site(x.at);
  return run_as_one("nancumsum", [&] { return cumsum(where(isnan(x), zeros_like(x), x), axis); });
}
Array nancumprod(const Operand& x, std::optional<int> axis) {
  const CallSiteScope site(x.at);
  return run_as_one("nancumprod", [&] { return cumprod(where(isnan(x), ones_like(x), x), axis); });
}
Array nanpercentile(const Operand& x, double q, const Axes& axes, bool keepdims) {
  return nanquantile(x, q / 100, axes, keepdims);
}

Array logmeanexp(const Operand& x, const Axes& axes, bool keepdims) {
  const CallSiteScope site(x.at);
  const Array a = to_float_array(x);
  double count = 1;
  for (const int64_t axis : normalize_axes("logmeanexp", axes, a.type(), true))
    count *= static_cast<double>(a.shape()[static_cast<int>(axis)]);
  return run_as_one("logmeanexp", [&] { return logsumexp(a, axes, keepdims) - std::log(count); });
}

Array trapezoid(const Operand& y, const Operand& dx, int axis) {
  const CallSiteScope site(y.at);
  const Array a = to_float_array(y);
  const auto i = static_cast<int>(normalize_axis("trapezoid", axis, a.rank(), a.type()));
  const int64_t n = a.shape()[i];
  if (dx.rank() != 0)
    trace_error_here("[trapezoid] the width must be a scalar, got rank {}", dx.rank());
  if (n == 0)
    trace_error_here("[trapezoid] expected elements along axis {}, got {}", axis,
                     to_string(a.type()));
  return run_as_one("trapezoid", [&] {
    return sum((slice(a, i, 1, n) + slice(a, i, 0, n - 1)) * 0.5, i) * dx;
  });
}

Array cov(const Operand& x, int ddof) {
  const CallSiteScope site(x.at);
  const Array a = atleast_2d(to_float_array(x));
  if (a.rank() > 2) trace_error_here("[cov] expected a matrix, got {}", to_string(a.type()));
  return run_as_one("cov", [&] {
    if (a.dim(1) == 0) return squeeze(full({a.dim(0), a.dim(0)}, std::nan(""), a.dtype()));
    const Array centered = a - mean(a, 1, true);
    return squeeze(matmul(centered, transpose(centered)) / static_cast<double>(a.dim(1) - ddof));
  });
}

Array corrcoef(const Operand& x) {
  const CallSiteScope site(x.at);
  return run_as_one("corrcoef", [&] {
    const Array c = cov(x);
    if (c.rank() == 0) return c / c;
    const Array deviation = sqrt(diag(c));
    return clip(c / expand_dims(deviation, 1) / deviation, -1, 1);
  });
}

}  // namespace stow
