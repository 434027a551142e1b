#include "stowage/api/special.h"

#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "stowage/api/custom_vjp.h"
#include "stowage/api/math_internal.h"
#include "stowage/api/shaping.h"

namespace stow {
namespace {

constexpr double kG = 7;
constexpr std::array<double, 9> kLanczos = {
    0.99999999999980993227684700473478, 676.520368121885098567009190444019,
    -1259.13921672240287047156078755283, 771.3234287776530788486528258894,
    -176.61502916214059906584551354, 12.507343278686904814458936853,
    -0.13857109526572011689554707, 9.984369578019570859563e-6, 1.50563273514931155834e-7};
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// f of a in f32 where a is narrower.
template <typename F>
Array computed(const Array& a, F f) {
  return convert_to(f(at_least_f32(a)), a.dtype());
}

// The series and its derivative at z.
struct Series {
  Array sum, slope;
};
Series lanczos(const Array& z) {
  Series s{full_like(z, kLanczos[0]), zeros_like(z)};
  for (size_t i = 1; i < kLanczos.size(); ++i) {
    const Array part = kLanczos[i] / (z + static_cast<double>(i));
    s.sum = s.sum + part;
    s.slope = s.slope - part / (z + static_cast<double>(i));
  }
  return s;
}

// The distance to the nearest whole number, signed as x - round(x).
Array from_whole(const Array& x) {
  return x - floor(x + 0.5);
}

Array lgamma_value(const Array& x) {
  const Array reflect = x < 0.5;
  const Array z = where(reflect, -x, x - 1.0);
  const Array log_t = std::log(kG + 0.5) + log1p(z / (kG + 0.5));
  const Array t = z + (kG + 0.5);
  const Array y = (z + 0.5 - t / log_t) * log_t + 0.5 * std::log(2 * std::numbers::pi) +
                  log(lanczos(z).sum);
  const Array log_sine = log(abs(sin(std::numbers::pi * from_whole(x))));
  const Array mirrored =
      where(isfinite(log_sine), std::log(std::numbers::pi) - log_sine - y, -log_sine);
  const Array value = where(reflect, mirrored, y);
  return where(abs(x) == kInf, full_like(x, kInf), value);
}

Array digamma_value(const Array& x) {
  const Array reflect = x < 0.5;
  const Array z = where(reflect, -x, x - 1.0);
  const Array t = z + (kG + 0.5);
  const Array log_t = std::log(kG + 0.5) + log1p(z / (kG + 0.5));
  const Series series = lanczos(z);
  const Array y = log_t + series.slope / series.sum - kG / t;
  const Array turn = std::numbers::pi * from_whole(x);
  const Array value = where(reflect, y - std::numbers::pi * cos(turn) / sin(turn), y);
  const Array pole = logical_and(x <= 0.0, x == floor(x));
  return where(pole, full_like(x, kNan), where(x == kInf, full_like(x, kInf), value));
}

Array trigamma(const Array& a) {
  return computed(a, [](const Array& x) {
    const Array reflect = x < 0.5;
    Array y = where(reflect, 1.0 - x, x);
    Array sum = zeros_like(y);
    for (int i = 0; i < 8; ++i) {
      sum = sum + 1.0 / (y * y);
      y = y + 1.0;
    }
    const Array r = 1.0 / y, r2 = r * r;
    // The Bernoulli numbers B2, B4, …, by Horner's rule.
    Array tail = full_like(y, -691.0 / 2730);
    for (const double b : {5.0 / 66, -1.0 / 30, 1.0 / 42, -1.0 / 30, 1.0 / 6}) tail = tail * r2 + b;
    const Array value = sum + r + r2 * 0.5 + tail * r2 * r;
    // Kept from 0 where it does not count, lest it make a gradient NaN.
    const Array sine = where(reflect, sin(std::numbers::pi * from_whole(x)), 1.0);
    const Array mirrored = std::numbers::pi * std::numbers::pi / (sine * sine) - value;
    return where(reflect, mirrored, value);
  });
}

// `value` with the gradient `slope`.
Array with_slope(const char* name, const Operand& x, Array (*value)(const Array&),
                 Array (*slope)(const Array&)) {
  const Site site(x.at);
  const Array a = to_float_array(x);
  return run_as_one(name, [&] {
    const auto function = [value](const Array& v) { return computed(v, value); };
    const auto forward = [=](const Array& v) { return std::pair(function(v), v); };
    const auto backward = [slope](const Array& v, const Array& ct) { return ct * slope(v); };
    return custom_vjp(function, forward, backward, x.at)(a);
  });
}

}  // namespace

Array lgamma(const Operand& x) {
  return with_slope("lgamma", x, lgamma_value, [](const Array& a) { return digamma(a); });
}

Array digamma(const Operand& x) {
  return with_slope("digamma", x, digamma_value, trigamma);
}

Array signbit(const Operand& x) {
  const Site site(x.at);
  const Array a = stop_gradient(to_array(x));
  return run_as_one("signbit", [&]() -> Array {
    switch (a.dtype()) {
      case DType::kF64:
        return bitcast_convert_type(a, DType::kI64) < 0;
      case DType::kF32:
      case DType::kBF16:
      case DType::kF16:
        return bitcast_convert_type(convert_to(a, DType::kF32), DType::kI32) < 0;
      case DType::kBool:
      case DType::kI8:
      case DType::kI32:
      case DType::kI64:
      case DType::kU8:
      case DType::kU32:
      case DType::kU64:
        return is_signed_int(a.dtype()) ? a < 0 : full(a.shape(), false);
    }
    return a;
  });
}

Array copysign(const Operand& x, const Operand& y) {
  const Site site(x.at);
  const WeakDType dtype = float_dtype(x, y);
  const Array a = to_array(x, dtype), b = to_array(y, dtype);
  return run_as_one("copysign", [&] { return where(signbit(a) == signbit(b), a, -a); });
}

Array log1mexp(const Operand& x) {
  const Site site(x.at);
  const Array a = to_float_array(x);
  return run_as_one("log1mexp", [&] {
    // Each form sees arguments of its own range alone, for the gradient's sake.
    const Array small = a < std::numbers::ln2;
    const Array near = where(small, a, ones_like(a)), far = where(small, ones_like(a), a);
    return where(small, log(-expm1(-near)), log1p(-exp(-far)));
  });
}

}  // namespace stow
