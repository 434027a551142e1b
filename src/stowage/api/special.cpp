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

// The signed distance to the nearest whole number. Not x - floor(x + 0.5): that sum rounds.
Array from_whole(const Array& x) {
  return x - round(x);
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
  const CallSiteScope site(x.at);
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
  const CallSiteScope site(x.at);
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
  const CallSiteScope site(x.at);
  const WeakDType dtype = float_dtype(x, y);
  const Array a = to_array(x, dtype), b = to_array(y, dtype);
  return run_as_one("copysign", [&] { return where(signbit(a) == signbit(b), a, -a); });
}

Array log1mexp(const Operand& x) {
  const CallSiteScope site(x.at);
  const Array a = to_float_array(x);
  return run_as_one("log1mexp", [&] {
    const auto value = [](const Array& v) {
      return where(v < std::numbers::ln2, log(-expm1(-v)), log1p(-exp(-v)));
    };
    const auto forward = [=](const Array& v) { return std::pair(value(v), v); };
    const auto backward = [](const Array& v, const Array& ct) { return ct / expm1(v); };
    return with_weak(custom_vjp(value, forward, backward, x.at)(a), a.type().weak);
  });
}

namespace {

struct FloatBits {
  DType words;
  int exponent, mantissa;
};
FloatBits bits_of(DType dtype) {
  if (dtype == DType::kF64) return {DType::kU64, 11, 52};
  return {DType::kU32, 8, 23};
}

// Rounds f32 or f64 by its bits.
Array rounded_to(const Array& x, int exponent_bits, int mantissa_bits) {
  const FloatBits f = bits_of(x.dtype());
  const auto word = [&](uint64_t v) { return scalar_constant(v, f.words); };
  const uint64_t sign_bit = uint64_t{1} << (f.exponent + f.mantissa);
  const uint64_t infinity = ((uint64_t{1} << f.exponent) - 1) << f.mantissa;
  const Array all = bitcast_convert_type(x, f.words);
  const Array sign = all & word(sign_bit);
  Array size = all & word(sign_bit - 1);
  if (mantissa_bits < f.mantissa) {
    const int dropped = f.mantissa - mantissa_bits;
    const Array last = (size >> word(static_cast<uint64_t>(dropped))) & word(1);
    size = size + last + word((uint64_t{1} << (dropped - 1)) - 1);
    size = size & word(~((uint64_t{1} << dropped) - 1) & (sign_bit - 1));
  }
  if (exponent_bits < f.exponent) {
    const uint64_t bias = (uint64_t{1} << (f.exponent - 1)) - 1;
    const uint64_t reach = (uint64_t{1} << (exponent_bits - 1)) - 1;
    const uint64_t above = (bias + reach + 1) << f.mantissa;      // the first that is infinite
    const uint64_t least = (bias - reach + 1) << f.mantissa;      // the smallest normal number
    size = where(size >= word(above), word(infinity), size);
    size = where(size < word(least), word(0), size);
  }
  return where(isnan(x), x, bitcast_convert_type(sign | size, x.dtype()));
}

}  // namespace

Array reduce_precision(const Operand& x, int exponent_bits, int mantissa_bits) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  if (!is_float(a.dtype()))
    trace_error_here("[reduce_precision] expected a float, got {}", to_string(a.type()));
  if (exponent_bits < 1 || mantissa_bits < 0)
    trace_error_here(
        "[reduce_precision] expected at least 1 bit of exponent and 0 of mantissa, got {} and {}",
        exponent_bits, mantissa_bits);
  return run_as_one("reduce_precision", [&] {
    const auto round = [=](const Array& v) {
      return computed(v,
                      [=](const Array& w) { return rounded_to(w, exponent_bits, mantissa_bits); });
    };
    const auto forward = [=](const Array& v) { return std::pair(round(v), None{}); };
    const auto backward = [=](None, const Array& ct) { return round(ct); };
    return with_weak(custom_vjp(round, forward, backward, x.at)(a), a.type().weak);
  });
}

}  // namespace stow
