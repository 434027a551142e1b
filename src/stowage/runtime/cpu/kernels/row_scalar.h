// The scalar form of each elementwise op, for f32, f64, integers and bool.
// Not the loops; those are in row_kernels_scalar.cpp and row_kernels_plain.cpp.
#pragma once

#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <numbers>
#include <type_traits>

#include "stowage/base/inside.h"
#include "stowage/ir/op_list.h"

namespace stow::cpu::scalar {

/// A bool in memory: a byte.
enum class Bool : uint8_t {};

template <typename T>
concept Float = std::floating_point<T>;
template <typename T>
concept Integer = std::integral<T>;
template <typename T>
concept Bits = Integer<T> || std::same_as<T, Bool>;

/// Unsigned type in which integers of type T are computed, so that they wrap; C++ would promote
/// short types to signed int.
template <Integer T>
using Wrap = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
template <Integer T>
Wrap<T> wide(T x) {
  return static_cast<Wrap<T>>(x);
}

/// Returns the inverse of erf; ±infinity for ±1, NaN beyond.
inline double erf_inv(double y) {
  const double a = std::fabs(y);
  if (std::isnan(y) || a > 1) return std::numeric_limits<double>::quiet_NaN();
  if (a == 0) return y;
  if (a == 1) return std::copysign(std::numeric_limits<double>::infinity(), y);
  // Winitzki 2008, then Halley's method on erf where it is steep and on erfc where it is flat.
  const double c = 1 - a, k = 0.147, log_term = std::log(c * (1 + a));
  const double half = 2 / (std::numbers::pi * k) + log_term / 2;
  double x = a < 0.01 ? a : std::sqrt(std::sqrt(half * half - log_term / k) - half);
  for (int i = 0; i < 60; ++i) {
    const double slope = 2 / std::sqrt(std::numbers::pi) * std::exp(-x * x);
    const double error = a < 0.5 ? std::erf(x) - a : c - std::erfc(x);
    const double step = error / slope;
    const double next = x - step / (1 + x * step);
    if (next == x) break;
    x = next;
  }
  return std::copysign(x, y);
}

/// Unary<op, T>::apply(x), Binary<op, T>::apply(a, b) and Test<op, T>::apply(a, b) compute the op.
/// They are not defined for types for which the op is not.
template <OpKind K, typename T>
struct Unary;

#define STOW_UNARY(kind, concept_name, expression) \
  template <concept_name T>                        \
  struct Unary<OpKind::kind, T> {                  \
    static T apply(T x) { return (expression); }   \
  }
#define STOW_BINARY(kind, concept_name, expression)   \
  template <concept_name T>                           \
  struct Binary<OpKind::kind, T> {                    \
    static T apply(T a, T b) { return (expression); } \
  }

STOW_UNARY(kNeg, Float, -x);
STOW_UNARY(kNeg, Integer, static_cast<T>(0 - wide(x)));
STOW_UNARY(kAbs, Float, std::fabs(x));
STOW_UNARY(kAbs, Integer, std::is_signed_v<T>&& x < 0 ? static_cast<T>(0 - wide(x)) : x);
STOW_UNARY(kSign, Float, x > 0 ? T(1) : x < 0 ? T(-1) : x);
STOW_UNARY(kSign, Integer, static_cast<T>((x > 0) - (std::is_signed_v<T> && x < 0)));
STOW_UNARY(kFloor, Float, std::floor(x));
STOW_UNARY(kCeil, Float, std::ceil(x));
STOW_UNARY(kRound, Float, std::nearbyint(x));
STOW_UNARY(kExp, Float, std::exp(x));
STOW_UNARY(kExpm1, Float, std::expm1(x));
STOW_UNARY(kLog, Float, std::log(x));
STOW_UNARY(kLog1p, Float, std::log1p(x));
STOW_UNARY(kTanh, Float, std::tanh(x));
STOW_UNARY(kSin, Float, std::sin(x));
STOW_UNARY(kCos, Float, std::cos(x));
STOW_UNARY(kTan, Float, std::tan(x));
STOW_UNARY(kAsin, Float, std::asin(x));
STOW_UNARY(kAcos, Float, std::acos(x));
STOW_UNARY(kAtan, Float, std::atan(x));
STOW_UNARY(kSinh, Float, std::sinh(x));
STOW_UNARY(kCosh, Float, std::cosh(x));
STOW_UNARY(kAsinh, Float, std::asinh(x));
STOW_UNARY(kAcosh, Float, std::acosh(x));
STOW_UNARY(kAtanh, Float, std::atanh(x));
STOW_UNARY(kCbrt, Float, std::cbrt(x));
STOW_UNARY(kErfc, Float, std::erfc(x));
STOW_UNARY(kSqrt, Float, std::sqrt(x));
STOW_UNARY(kRsqrt, Float, 1 / std::sqrt(x));
STOW_UNARY(kLogistic, Float, x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)));
STOW_UNARY(kErf, Float, std::erf(x));
STOW_UNARY(kErfInv, Float, erf_inv(x));
STOW_UNARY(kPopulationCount, Integer,
           static_cast<T>(std::popcount(static_cast<std::make_unsigned_t<T>>(x))));
STOW_UNARY(kCountLeadingZeros, Integer,
           static_cast<T>(std::countl_zero(static_cast<std::make_unsigned_t<T>>(x))));
STOW_UNARY(kNot, Integer, static_cast<T>(~wide(x)));
template <>
struct Unary<OpKind::kNot, Bool> {
  static Bool apply(Bool x) { return x == Bool{0} ? Bool{1} : Bool{0}; }
};

/// Returns a / b for a b that is neither 0 nor -1. Types of at most 32 bits are divided as floats,
/// of a type that cannot round the quotient up to an integer, since there are vector instructions
/// for them.
template <Integer T>
T divide_plain(T a, T b) {
  if constexpr (sizeof(T) == 8) {
    return static_cast<T>(a / b);
  } else {
    using F = std::conditional_t<sizeof(T) == 4, double, float>;
    return static_cast<T>(static_cast<F>(a) / static_cast<F>(b));
  }
}
/// Returns a / b, truncated. b = 0 gives -1 (all bits set); a quotient that is out of range wraps.
template <Integer T>
T divide(T a, T b) {
  const bool opposite = std::is_signed_v<T> && b == static_cast<T>(-1);
  const T q = divide_plain(a, b == 0 || opposite ? T(1) : b);
  const T signed_q = opposite ? static_cast<T>(0 - wide(a)) : q;
  return b == 0 ? static_cast<T>(-1) : signed_q;
}
/// Returns the remainder of divide(), with the sign of a; a for b = 0.
template <Integer T>
T remainder(T a, T b) {
  const bool opposite = std::is_signed_v<T> && b == static_cast<T>(-1);
  const T by = opposite ? T(1) : b == 0 ? T(1) : b;
  const T r = static_cast<T>(wide(a) - wide(divide_plain(a, by)) * wide(by));
  return b == 0 ? a : r;
}
/// Returns a^b, which wraps. A negative b gives the reciprocal, truncated; 0^b is then 0.
template <Integer T>
T power(T a, T b) {
  if (std::is_signed_v<T> && b < 0) {
    if (a == 1) return 1;
    if (a == static_cast<T>(-1)) return b % 2 == 0 ? T(1) : static_cast<T>(-1);
    return 0;
  }
  Wrap<T> result = 1, base = wide(a);
  for (auto n = static_cast<std::make_unsigned_t<T>>(b); n > 0;
       n = static_cast<decltype(n)>(n >> 1)) {
    if ((n & 1) != 0) result *= base;
    base *= base;
  }
  return static_cast<T>(result);
}
// Shifts by at least the number of bits, or by a negative count, shift out all bits.
template <Integer T>
constexpr int kBits = std::numeric_limits<std::make_unsigned_t<T>>::digits;
template <Integer T>
bool is_beyond(T count) {
  return static_cast<std::make_unsigned_t<T>>(count) >= static_cast<unsigned>(kBits<T>);
}
template <Integer T>
T shift_left(T a, T b) {
  return is_beyond(b) ? T(0) : static_cast<T>(wide(a) << b);
}
template <Integer T>
T shift_right(T a, T b) {
  if (is_beyond(b)) return std::is_signed_v<T> && a < 0 ? static_cast<T>(-1) : T(0);
  return static_cast<T>(a >> b);
}

template <OpKind K, typename T>
struct Binary;

STOW_BINARY(kAdd, Float, a + b);
STOW_BINARY(kSub, Float, a - b);
STOW_BINARY(kMul, Float, a* b);
STOW_BINARY(kDiv, Float, a / b);
STOW_BINARY(kRem, Float, std::fmod(a, b));
STOW_BINARY(kPow, Float, std::pow(a, b));
STOW_BINARY(kAtan2, Float, std::atan2(a, b));
// NaN if either is; +0 is above -0.
STOW_BINARY(kMax, Float, a != a ? a : a == b ? (std::signbit(a) ? b : a) : a > b ? a : b);
STOW_BINARY(kMin, Float, a != a ? a : a == b ? (std::signbit(a) ? a : b) : a < b ? a : b);
STOW_BINARY(kAdd, Integer, static_cast<T>(wide(a) + wide(b)));
STOW_BINARY(kSub, Integer, static_cast<T>(wide(a) - wide(b)));
STOW_BINARY(kMul, Integer, static_cast<T>(wide(a) * wide(b)));
STOW_BINARY(kDiv, Integer, divide(a, b));
STOW_BINARY(kRem, Integer, remainder(a, b));
STOW_BINARY(kPow, Integer, power(a, b));
STOW_BINARY(kMax, Bits, a > b ? a : b);
STOW_BINARY(kMin, Bits, a < b ? a : b);
STOW_BINARY(kAnd, Integer, static_cast<T>(a& b));
STOW_BINARY(kOr, Integer, static_cast<T>(a | b));
STOW_BINARY(kXor, Integer, static_cast<T>(a ^ b));
STOW_BINARY(kShiftLeft, Integer, shift_left(a, b));
STOW_BINARY(kShiftRight, Integer, shift_right(a, b));
template <>
struct Binary<OpKind::kAnd, Bool> {
  static Bool apply(Bool a, Bool b) { return Bool(uint8_t(a) & uint8_t(b)); }
};
template <>
struct Binary<OpKind::kOr, Bool> {
  static Bool apply(Bool a, Bool b) { return Bool(uint8_t(a) | uint8_t(b)); }
};
template <>
struct Binary<OpKind::kXor, Bool> {
  static Bool apply(Bool a, Bool b) { return Bool(uint8_t(a) ^ uint8_t(b)); }
};

template <OpKind K, typename T>
struct Test;
#define STOW_TEST(kind, expression)                                   \
  template <typename T>                                               \
  struct Test<OpKind::kind, T> {                                      \
    static Bool apply(T a, T b) { return Bool(uint8_t(expression)); } \
  }
STOW_TEST(kEq, a == b);
STOW_TEST(kNe, a != b);
STOW_TEST(kLt, a < b);
STOW_TEST(kLe, a <= b);
STOW_TEST(kGt, a > b);
STOW_TEST(kGe, a >= b);
#undef STOW_UNARY
#undef STOW_BINARY
#undef STOW_TEST

/// Rounds x to a float to odd: towards zero, with the last bit set if x is not exact. A further
/// rounding to 16 bits then gives the same result as for x itself.
inline float round_to_odd(double x) {
  const auto y = static_cast<float>(x);
  const auto back = static_cast<double>(y);
  const uint32_t bits = std::bit_cast<uint32_t>(y);
  const uint32_t odd = (bits - (std::fabs(back) > std::fabs(x) ? 1 : 0)) | 1;
  return std::bit_cast<float>(back == x || x != x ? bits : odd);
}
template <Integer T>
float round_to_odd(T x) {
  if constexpr (sizeof(T) < 8) {
    return round_to_odd(static_cast<double>(x));
  } else {
    // Bits that a double cannot hold are replaced by one bit that is set if any of them is.
    constexpr T kLost = 0x7ff;
    const T high = static_cast<T>((x & ~kLost) | ((x & kLost) != 0 ? kLost + 1 : 0));
    const bool is_small = x < T{1} << 52 && (!std::is_signed_v<T> || x > -(T{1} << 52));
    return round_to_odd(static_cast<double>(is_small ? x : high));
  }
}

/// Returns x as an integer, rounded towards zero. A number out of range gives the nearest integer
/// in range, NaN 0. Has no branches, so that compilers can vectorize loops over it.
template <Integer To, Float From>
To saturate(From x) {
  constexpr To kMost = std::numeric_limits<To>::max(), kLeast = std::numeric_limits<To>::min();
  constexpr auto kLow = static_cast<From>(kLeast);
  const From number = std::is_signed_v<To> && x != x ? From(0) : x;
  const From low = number > kLow ? number : kLow;  // for unsigned types also maps NaN to 0
  if constexpr (std::numeric_limits<To>::digits <= std::numeric_limits<From>::digits) {
    constexpr auto kHigh = static_cast<From>(kMost);
    const From inside = low < kHigh ? low : kHigh;
    if constexpr (sizeof(To) < 4)
      return static_cast<To>(static_cast<int32_t>(inside));
    else
      return static_cast<To>(inside);
  } else {
    // The first number above the range is a power of two, which is a float.
    constexpr From kAbove = static_cast<From>(To{1} << (std::numeric_limits<To>::digits - 1)) * 2;
    const bool fits = low < kAbove;
    const From inside = fits ? low : From(0);
    To y;
    if constexpr (std::same_as<To, uint32_t>) {
      constexpr From kHalf = 2147483648.0f;
      const bool high = inside >= kHalf;
      const auto part = static_cast<uint32_t>(static_cast<int32_t>(high ? inside - kHalf : inside));
      y = part + (high ? 0x80000000u : 0u);
    } else {
      y = static_cast<To>(inside);
    }
    return fits ? y : kMost;
  }
}

/// Converts between any two types. A number is true if it is not 0; floats saturate as integers.
template <typename To, typename From>
To convert(From x) {
  if constexpr (std::same_as<From, Bool>) {
    return convert<To>(static_cast<uint8_t>(uint8_t(x) != 0));
  } else if constexpr (std::same_as<To, Bool>) {
    return Bool(uint8_t(x != 0));
  } else if constexpr (Float<From> && Integer<To>) {
    return saturate<To>(x);
  } else {
    return static_cast<To>(x);
  }
}

}  // namespace stow::cpu::scalar
