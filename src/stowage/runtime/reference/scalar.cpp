#include <cmath>
#include <limits>
#include <numbers>

#include "stowage/base/error.h"
#include "stowage/runtime/reference/families.h"

namespace stow::ref {
namespace {

uint64_t u(int64_t x) {
  return static_cast<uint64_t>(x);
}
int64_t s(uint64_t x) {
  return static_cast<int64_t>(x);
}

}  // namespace

IntType int_type(DType dtype) {
  if (dtype == DType::kBool) return {1, false};
  return {static_cast<int>(8 * dtype_bytes(dtype)), is_signed_int(dtype)};
}

double sign(double x) {
  return x > 0 ? 1 : x < 0 ? -1 : x;
}

double logistic(double x) {
  if (x >= 0) return 1 / (1 + std::exp(-x));
  const double e = std::exp(x);
  return e / (1 + e);
}

// Newton's method on erf where it is not flat and on erfc where it is; 1 - |y| is exact there.
double erf_inv(double y) {
  const double a = std::fabs(y);
  if (std::isnan(y) || a > 1) return std::numeric_limits<double>::quiet_NaN();
  if (a == 0) return y;
  if (a == 1) return std::copysign(std::numeric_limits<double>::infinity(), y);
  const double c = 1 - a;
  // Winitzki 2008: relative error below 2e-3.
  const double k = 0.147, log_term = std::log(c * (1 + a));
  const double half = 2 / (std::numbers::pi * k) + log_term / 2;
  double x = a < 0.01 ? a : std::sqrt(std::sqrt(half * half - log_term / k) - half);
  for (int i = 0; i < 60; ++i) {
    const double slope = 2 / std::sqrt(std::numbers::pi) * std::exp(-x * x);
    const double error = a < 0.5 ? std::erf(x) - a : c - std::erfc(x);
    const double step = error / slope;
    // Halley's correction: erf'' / erf' = -2x.
    const double next = x - step / (1 + x * step);
    if (next == x) break;
    x = next;
  }
  return std::copysign(x, y);
}

double maximum(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::quiet_NaN();
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}

double minimum(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::quiet_NaN();
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}

double log_add_exp(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return a + b;
  if (a == b) return a + std::log(2.0);  // infinities too
  const double most = std::max(a, b);
  return std::isinf(most) ? most : most + std::log1p(std::exp(std::min(a, b) - most));
}

int64_t int_add(int64_t a, int64_t b, IntType) {
  return s(u(a) + u(b));
}
int64_t int_sub(int64_t a, int64_t b, IntType) {
  return s(u(a) - u(b));
}
int64_t int_mul(int64_t a, int64_t b, IntType) {
  return s(u(a) * u(b));
}

int64_t int_div(int64_t a, int64_t b, IntType type) {
  if (b == 0) return -1;
  if (!type.is_signed) return s(u(a) / u(b));
  if (b == -1) return s(0 - u(a));  // a / b of the smallest int64 is undefined
  return a / b;
}

int64_t int_rem(int64_t a, int64_t b, IntType type) {
  if (b == 0) return a;
  if (!type.is_signed) return s(u(a) % u(b));
  if (b == -1) return 0;
  return a % b;
}

int64_t int_pow(int64_t a, int64_t b, IntType type) {
  if (type.is_signed && b < 0) {
    if (a == 1) return 1;
    if (a == -1) return b % 2 == 0 ? 1 : -1;
    return 0;
  }
  uint64_t result = 1, base = u(a);
  for (uint64_t exponent = u(b); exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0) result *= base;
    base *= base;
  }
  return s(result);
}

bool int_less(int64_t a, int64_t b, IntType type) {
  return type.is_signed ? a < b : u(a) < u(b);
}
int64_t int_max(int64_t a, int64_t b, IntType type) {
  return int_less(a, b, type) ? b : a;
}
int64_t int_min(int64_t a, int64_t b, IntType type) {
  return int_less(b, a, type) ? b : a;
}

int64_t int_population_count(int64_t x, IntType type) {
  int64_t count = 0;
  for (int i = 0; i < type.bits; ++i) count += u(x) >> i & 1;
  return count;
}

int64_t int_leading_zeros(int64_t x, IntType type) {
  int64_t count = 0;
  for (int i = type.bits; i-- > 0 && (u(x) >> i & 1) == 0;) ++count;
  return count;
}

int64_t int_shift_left(int64_t a, int64_t b, IntType type) {
  return u(b) >= u(type.bits) ? 0 : s(u(a) << b);
}

int64_t int_shift_right(int64_t a, int64_t b, IntType type) {
  const bool beyond = u(b) >= u(type.bits);  // a negative count too
  if (!type.is_signed) return beyond ? 0 : s(u(a) >> b);
  return a >> (beyond ? 63 : b);
}

}  // namespace stow::ref
