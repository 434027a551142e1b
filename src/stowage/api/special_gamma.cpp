// Incomplete gamma and beta functions, zeta and polygamma: declared in special.h.
#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "stowage/api/control.h"
#include "stowage/api/custom_vjp.h"
#include "stowage/api/math_internal.h"
#include "stowage/api/reduce.h"
#include "stowage/api/shaping.h"
#include "stowage/api/special_internal.h"

namespace stow {
namespace {

using std::numbers::pi;
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// A sum over terms and its derivative by a.
struct Sum {
  Array value, slope;
};

template <size_t n>
std::array<Array, n> where_all(const Array& condition, const std::array<Array, n>& a,
                               const std::array<Array, n>& b) {
  std::array<Array, n> chosen;
  for (size_t i = 0; i < n; ++i) chosen[i] = where(condition, a[i], b[i]);
  return chosen;
}

// The sum of x^n / ((a + 1) … (a + n)) over n from 0, where `wanted`: each element until its terms
// no longer count.
Sum power_series(const Array& a, const Array& x, const Array& wanted, double epsilon) {
  using State = std::array<Array, 6>;  // open, a + n, term and sum, and the slopes of these
  const auto next = [&](const State& s) {
    const Array r = s[1] + 1.0, term = s[2] * (x / r);
    const Array slope = s[4] * (x / r) - term / r;
    const Array sum = s[3] + term, sum_slope = s[5] + slope;
    const Array open = logical_or(term > epsilon * sum, abs(slope) > epsilon * abs(sum_slope));
    return where_all(s[0], State{open, r, term, sum, slope, sum_slope}, s);
  };
  const Array zero = zeros_like(a), one = ones_like(a);
  const State s = while_loop([](const State& now) { return any(now[0]); }, next,
                             State{wanted, a, one, one, zero, zero});
  return {s[3], s[5]};
}

// The continued fraction for the integral of the rest, for x > a, by its convergents p / q.
Sum continued_fraction(const Array& a, const Array& x, const Array& wanted, double epsilon) {
  // open, value, slope, 1 - a + n, the denominator, n; p and q, the ones before, and their slopes
  using State = std::array<Array, 14>;
  constexpr double kTooLarge = 0x1p52;
  const auto next = [&](const State& s) {
    const Array n = s[5] + 1.0, y = s[3] + 1.0, z = s[4] + 2.0, yn = y * n;
    const Array p = s[6] * z - s[8] * yn, q = s[7] * z - s[9] * yn;
    const Array dp = s[10] * z - s[6] - s[12] * yn + s[8] * n;
    const Array dq = s[11] * z - s[7] - s[13] * yn + s[9] * n;
    const Array usable = q != 0.0;
    const Array value = where(usable, p / q, s[1]);
    const Array slope = where(usable, (dp - value * dq) / q, s[2]);
    const Array off = abs(value - s[1]), off_slope = abs(slope - s[2]);
    const Array open =
        logical_or(logical_not(usable),
                   logical_or(off > epsilon * abs(value), off_slope > epsilon * abs(slope)));
    const Array scale = where(abs(p) > kTooLarge, 1 / kTooLarge, 1.0);
    State made{logical_and(open, n < 4000.0), value, slope, y, z, n, p, q, s[6], s[7], dp, dq,
               s[10], s[11]};
    for (size_t i = 6; i < made.size(); ++i) made[i] = made[i] * scale;
    return where_all(s[0], made, s);
  };
  const Array zero = zeros_like(a), one = ones_like(a), y = 1.0 - a, z = x + y + 1.0;
  const Array p = x + 1.0, q = z * x, value = p / q;
  const State s = while_loop(
      [](const State& now) { return any(now[0]); }, next,
      State{wanted, value, value * x / q, y, z, zero, p, q, one, x, zero, -x, zero, zero});
  return {s[1], s[2]};
}

double epsilon_of(DType dtype) {
  return dtype == DType::kF64 ? 0x1p-51 : 0x1p-28;
}

// Beyond it the sums take too many terms, and what multiplies them loses too many digits.
constexpr double kLargeShape = 0x1p20;

// The derivative by a of a gamma variable y of a large shape a, at a fixed share of those below:
// from y = a + z sqrt(a) + (z^2 - 1) / 3 + ... (Cornish and Fisher).
Array large_sample_slope(const Array& a, const Array& y) {
  const Array off = y - a;
  return 1.0 + (off - (square(off) / a - 1.0) / 3.0) / (2.0 * a);
}

// Probabilities of a gamma variable of large shape a: below x, above it, and the density there.
// First terms of Temme's expansion (DLMF 8.12).
struct LargeGamma {
  Array lower, upper, density;
};
LargeGamma large_gamma(const Array& wanted, const Array& all_a, const Array& all_x) {
  const Array a = where(wanted, all_a, kLargeShape), x = where(wanted, all_x, kLargeShape);
  const Array mu = (x - a) / a;  // where little is neither 0 nor 1 it is below 0.01
  const Array near = clip(mu, -0.01, 0.01);
  Array series = full_like(near, 1.0 / 12);
  for (int n = 11; n >= 2; --n) series = 1.0 / n - near * series;
  const Array half_square = where(abs(mu) < 0.01, square(near) * series, mu - log1p(mu));
  const Array eta = sign(mu) * sqrt(2.0 * half_square), z = eta * sqrt(a / 2.0);
  const Array bell = exp(-(a * half_square));
  const Array e = clip(eta, -0.01, 0.01);
  const Array first = -1.0 / 3.0 + e * (1.0 / 12.0 - e * (2.0 / 135.0));
  const Array beside = bell * first / sqrt(2.0 * pi * a);
  return {0.5 * erfc(-z) - beside, 0.5 * erfc(z) + beside, bell * sqrt(a / (2.0 * pi)) / x};
}

// The part of the incomplete gamma functions to compute.
enum class Part { kLower, kUpper, kLowerSlope };

// x^a exp(-x) / gamma(a)
Array density_scale(const Array& a, const Array& x) {
  return exp(a * log(x) - x - lgamma(a));
}

Array incomplete_gamma(const Array& a, const Array& x, Part part, double epsilon) {
  const Array known = logical_or(x == 0.0, logical_or(x == kInf, a == 0.0));
  const Array wrong = ~logical_and(x >= 0.0, logical_and(a >= 0.0, logical_or(a > 0.0, x > 0.0)));
  const Array scale = density_scale(a, x);
  const Array is_large = logical_and(a > kLargeShape, ~logical_or(known, wrong));
  const Array inside = logical_and(~logical_or(known, logical_or(wrong, is_large)), scale > 0.0);
  const LargeGamma large = large_gamma(is_large, a, x);
  const Array upper = logical_and(x >= 1.0, x > a);
  const Sum below = power_series(a, x, logical_and(inside, ~upper), epsilon);
  const Sum above = continued_fraction(a, x, logical_and(inside, upper), epsilon);
  if (part == Part::kLowerSlope) {
    const Array low = below.slope + below.value * (log(x) - digamma(a + 1.0));
    const Array high = above.slope + above.value * (log(x) - digamma(a));
    const Array value = where(upper, -(scale * high), scale * low / a);
    const Array slope = where(is_large, -(large.density * large_sample_slope(a, x)), 0.0);
    return where(logical_or(wrong, a == 0.0), kNan, where(inside, value, slope));
  }
  const Array low = scale * below.value / a, high = scale * above.value;
  const Array all = logical_or(x > a, x == kInf);
  const Array lower = where(inside, where(upper, 1.0 - high, low), where(all, 1.0, 0.0));
  const Array rest = where(inside, where(upper, high, 1.0 - low), where(all, 0.0, 1.0));
  const Array of_small = part == Part::kLower ? lower : rest;
  return where(wrong, kNan,
               where(is_large, part == Part::kLower ? large.lower : large.upper, of_small));
}

Array igamma_density(const Array& a, const Array& x) {
  const Array is_large = logical_and(a > kLargeShape, logical_and(x > 0.0, x < kInf));
  const LargeGamma large = large_gamma(is_large, a, x);
  return where(is_large, large.density, exp(-x + (a - 1.0) * log(x) - lgamma(a)));
}

// The continued fraction of the incomplete beta function (DLMF 8.17.22), by Lentz's method.
Array beta_fraction(const Array& a, const Array& b, const Array& x) {
  using State = std::array<Array, 5>;  // open, n, the two ratios, the product
  constexpr double kTiny = 0x1p-200;
  const auto apart = [](const Array& v) { return where(abs(v) < kTiny, kTiny, v); };
  const auto next = [&](const State& s) {
    const Array n = s[1] + 1.0, m = floor(n / 2.0), m2 = a + 2.0 * m;
    const Array even = m * (b - m) * x / ((m2 - 1.0) * m2);
    const Array odd = -((a + m) * (a + b + m) * x / (m2 * (m2 + 1.0)));
    const Array d = where(n == 2.0 * m, even, odd);
    const Array c = apart(1.0 + d / s[2]), r = 1.0 / apart(1.0 + d * s[3]);
    const Array factor = c * r;
    const Array open = logical_and(abs(factor - 1.0) > 0x1p-51, n < 1000.0);
    return where_all(s[0], State{open, n, c, r, s[4] * factor}, s);
  };
  const Array one = ones_like(a), zero = zeros_like(a);
  return 1.0 / while_loop([](const State& now) { return any(now[0]); }, next,
                          State{full(a.shape(), true), zero, one, zero, one})[4];
}

Array log_beta(const Array& a, const Array& b) {
  return lgamma(a) + lgamma(b) - lgamma(a + b);
}

Array incomplete_beta(const Array& a, const Array& b, const Array& x) {
  const auto both = [](const Array& v, const Array& w) { return logical_and(v, w); };
  const auto either = [](const Array& v, const Array& w) { return logical_or(v, w); };
  const Array no_a = either(a == 0.0, b == kInf), no_b = either(b == 0.0, a == kInf);
  const Array inside = both(both(a >= 0.0, b >= 0.0), both(x >= 0.0, x <= 1.0));
  const Array known = either(either(no_a, no_b), either(x == 0.0, x == 1.0));
  const Array direct = x < (a + 1.0) / (a + b + 2.0);
  // Each element on the side where the fraction converges fast.
  const Array one = ones_like(a), safe = both(inside, ~known);
  const Array p = where(safe, where(direct, a, b), one), q = where(safe, where(direct, b, a), one);
  const Array y = where(safe, where(direct, x, 1.0 - x), 0.5);
  const Array scale = exp(log(y) * p + log1p(-y) * q - log_beta(p, q)) / p;
  const Array part = scale * beta_fraction(p, q, y);
  const Array value = where(direct, part, 1.0 - part);
  const Array at_end = where(either(both(no_a, x > 0.0), both(~no_b, x == 1.0)), 1.0, 0.0);
  const Array ends = where(both(no_b, x == 1.0), 1.0, at_end);
  return where(either(~inside, both(no_a, no_b)), kNan, where(known, ends, value));
}

// Euler and Maclaurin: terms up to q + 9, then the integral and its corrections.
Array zeta_value(const Array& x, const Array& q) {
  // (2k)! / B_2k
  constexpr std::array<double, 12> kCorrections = {12,
                                                   -720,
                                                   30240,
                                                   -1209600,
                                                   47900160,
                                                   -1307674368000 / 691.0,
                                                   74724249600,
                                                   -10670622842880000 / 3617.0,
                                                   5109094217170944000 / 43867.0,
                                                   -802857662698291200000.0 / 174611,
                                                   14101100039391805440000.0 / 77683,
                                                   -1693824136731743669452800000.0 / 236364091};
  const Array pole = logical_and(q <= 0.0, q == floor(q));
  const Array outside = logical_and(q < 0.0, x != floor(x));
  const Array usable = logical_and(x > 1.0, ~logical_or(pole, outside));
  const Array s = where(usable, x, 2.0), first = where(usable, q, 1.0);
  Array sum = zeros_like(s);
  for (int i = 0; i < 9; ++i) sum = sum + pow(first + static_cast<double>(i), -s);
  const Array last = first + 9.0, power = pow(last, -s);
  Array factor = s / last, tail = 0.5 + last / (s - 1.0);
  for (size_t k = 0; k < kCorrections.size(); ++k) {
    tail = tail + factor / kCorrections[k];
    const auto n = static_cast<double>(2 * k + 1);
    factor = factor * ((s + n) / last) * ((s + (n + 1)) / last);
  }
  // Beyond what a large x leaves of it the corrections overflow.
  const Array rest = where(power == 0.0, 0.0, power * tail);
  const Array even = x == 2.0 * floor(x / 2.0);
  const Array at_pole = where(logical_or(even, q == 0.0), kInf, kNan);
  const Array not_usable = where(logical_and(x > 1.0, pole), at_pole, kNan);
  return where(usable, sum + rest, where(x == 1.0, kInf, not_usable));
}

}  // namespace

Array log_gamma_sample_derivative(const Array& a, const Array& log_y, DType dtype) {
  const double epsilon = epsilon_of(dtype);
  const Array y = exp(log_y), is_large = a > kLargeShape;
  const Array inside = logical_and(logical_and(a > 0.0, ~is_large), log_y < kInf);
  const Array upper = logical_and(y >= 1.0, y > a);
  const Sum below = power_series(a, y, logical_and(inside, ~upper), epsilon);
  const Sum above = continued_fraction(a, y, logical_and(inside, upper), epsilon);
  const Array low = -((below.slope + below.value * (log_y - digamma(a + 1.0))) / a);
  const Array of_small = where(upper, above.slope + above.value * (log_y - digamma(a)), low);
  return where(is_large, large_sample_slope(a, y) / y, of_small);
}

Array random_gamma_grad(const Operand& a, const Operand& x) {
  const CallSiteScope site(a.at);
  const DType dtype = float_dtype(a, x).dtype;
  return compute_in_f64("random_gamma_grad", {a, x}, [dtype](const Arrays& v) {
    const Array slope = v[1] * log_gamma_sample_derivative(v[0], log(v[1]), dtype);
    const Array wrong = ~logical_and(v[0] > 0.0, v[1] >= 0.0);
    return where(wrong, kNan, where(v[1] == 0.0, 0.0, slope));
  });
}

namespace {

Array incomplete_gamma(const char* name, const Operand& a, const Operand& x, Part part) {
  const CallSiteScope site(a.at);
  const double epsilon = epsilon_of(float_dtype(a, x).dtype);
  const auto value = [=](const Arrays& v) { return incomplete_gamma(v[0], v[1], part, epsilon); };
  const auto slopes = [=](const Arrays& v) {
    const Array by_a = incomplete_gamma(v[0], v[1], Part::kLowerSlope, epsilon);
    const Array by_x = igamma_density(v[0], v[1]);
    return part == Part::kLower ? Arrays{by_a, by_x} : Arrays{-by_a, -by_x};
  };
  return with_derivatives(name, {a, x}, value, slopes);
}

}  // namespace

Array igamma(const Operand& a, const Operand& x) {
  return incomplete_gamma("igamma", a, x, Part::kLower);
}
Array igammac(const Operand& a, const Operand& x) {
  return incomplete_gamma("igammac", a, x, Part::kUpper);
}

Array betainc(const Operand& a, const Operand& b, const Operand& x) {
  const auto value = [](const Arrays& v) { return incomplete_beta(v[0], v[1], v[2]); };
  const auto slopes = [](const Arrays& v) {
    const Array by_x = exp((v[1] - 1.0) * log1p(-v[2]) + (v[0] - 1.0) * log(v[2]) -
                           log_beta(v[0], v[1]));
    return Arrays{by_x};
  };
  return with_derivatives("betainc", {a, b, x}, value, slopes, 2);
}

Array betaln(const Operand& a, const Operand& b) {
  return compute_in_f64("betaln", {a, b}, [](const Arrays& v) { return log_beta(v[0], v[1]); });
}

Array zeta(const Operand& x, const Operand& q) {
  return compute_in_f64("zeta", {x, q}, [](const Arrays& v) { return zeta_value(v[0], v[1]); });
}

Array polygamma(const Operand& n, const Operand& x) {
  const CallSiteScope site(x.at);
  if (!is_integer(n.dtype().dtype))
    trace_error_here("[polygamma] the order must be of integers, got {}",
                     dtype_name(n.dtype().dtype));
  return compute_in_f64("polygamma", {n, x}, [](const Arrays& v) {
    const Array sign = where(v[0] == 2.0 * floor(v[0] / 2.0), -1.0, 1.0);
    const Array of_order = sign * exp(lgamma(v[0] + 1.0)) * zeta_value(v[0] + 1.0, v[1]);
    return where(v[0] == 0.0, digamma(v[1]), where(v[0] < 0.0, kNan, of_order));
  });
}

}  // namespace stow
