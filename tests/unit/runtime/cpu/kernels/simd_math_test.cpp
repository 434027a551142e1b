#include "stowage/runtime/cpu/kernels/simd_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <vector>

#include "hwy/targets.h"
#include "tests/support/on_target.h"

namespace stow::cpu {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kDenormal = std::numeric_limits<float>::denorm_min();

double logistic(double x) {
  return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
}
double rsqrt(double x) {
  return 1 / std::sqrt(x);
}

// Newton on erf in the middle and on erfc in the tails, from below, where both converge.
double erf_inv(double y) {
  const double a = std::fabs(y), c = 1 - a;
  if (std::isnan(y) || a > 1) return std::nan("");
  if (a == 1) return std::copysign(INFINITY, y);
  if (a == 0) return y;
  double x = a < 0.5 ? a * 0.886 : std::sqrt(-std::log(c * (1 + a) * 0.9)) * 0.9;
  for (int i = 0; i < 100; ++i) {
    const double error = a < 0.5 ? std::erf(x) - a : c - std::erfc(x);
    const double step = error / (2 / std::sqrt(std::numbers::pi) * std::exp(-x * x));
    const double next = x - step / (1 + x * step);
    if (next == x) break;
    x = next;
  }
  return std::copysign(x, y);
}

// |got - want| in units of the last place of the float next to `want`; 0 for agreeing specials.
// Never NaN, which would exceed no bound.
double ulps(float got, double want) {
  const auto rounded = static_cast<float>(want);
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) == std::isnan(got) ? 0 : 1e9;
  if (std::isinf(rounded) || std::isinf(got)) {
    // One step over the edge of the range is one ulp, not infinitely many.
    const double big = std::numeric_limits<float>::max();
    if (got == rounded) return 0;
    return std::fabs(want) > big * (1 - 1e-6) && std::fabs(got) > big * (1 - 1e-6) ? 1 : 1e9;
  }
  if (rounded == 0 && got == 0) return std::signbit(rounded) == std::signbit(got) ? 0 : 1e9;
  const int exponent = std::max(std::ilogb(std::fabs(want)), -126);
  return std::fabs(got - want) / std::ldexp(1.0, exponent - 23);
}

// Every exponent and sign with mantissas spread over their range, and the special values.
std::vector<float> sweep(int mantissas) {
  std::vector<float> x = {0.0f, -0.0f, 1, -1, kInf, -kInf, kNaN, -kNaN, kDenormal, -kDenormal};
  for (uint32_t high = 0; high < 512; ++high) {
    uint32_t mantissa = 0x9e3779b9u * high;
    for (int k = 0; k < mantissas; ++k) {
      mantissa += 0x9e3779b9u;
      x.push_back(std::bit_cast<float>(high << 23 | mantissa >> 9));
    }
    x.push_back(std::bit_cast<float>(high << 23));
    x.push_back(std::bit_cast<float>(high << 23 | 0x7fffff));
  }
  return x;
}

// `n` values evenly over [low, high].
void append_range(std::vector<float>& x, double low, double high, int n) {
  for (int i = 0; i <= n; ++i) x.push_back(static_cast<float>(low + (high - low) * i / n));
}

std::vector<float> apply(OpKind op, const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<float> out(a.size());
  apply_math_f32(op, a.data(), b.data(), out.data(), static_cast<int64_t>(a.size()));
  return out;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

struct Function {
  OpKind op;
  double (*exact)(double);
  double max_ulp;    // measured on AVX2 and AVX-512, rounded up
  double low, high;  // where it is neither flat nor out of range
};

TEST(SimdMathUlps, ANaNWhereANumberIsDueIsFarOff) {
  EXPECT_EQ(ulps(kNaN, std::nan("")), 0);
  for (const double want : {0.0, 1.0, -1e-40, 1e300, double{kInf}})
    EXPECT_GT(ulps(kNaN, want), 1e6) << want;
  EXPECT_GT(ulps(1, std::nan("")), 1e6);
}

class SimdMath : public ::testing::TestWithParam<Function> {
 protected:
  static void expect_within(double most) {
    const Function& f = GetParam();
    std::vector<float> x = sweep(1000);
    append_range(x, f.low, f.high, 200000);
    append_range(x, -2, 2, 100000);
    const std::vector<float> y = apply(f.op, x, x);
    double worst = 0;
    float worst_x = 0, worst_y = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double error = ulps(y[i], f.exact(double{x[i]}));
      if (error > worst) worst = error, worst_x = x[i], worst_y = y[i];
    }
    RecordProperty("max_ulp", std::to_string(worst));
    EXPECT_LE(worst, most) << op_name(f.op) << "(" << worst_x << ") = " << worst_y << ", not "
                           << f.exact(double{worst_x});
    std::printf("%s: %.3f ulp\n", std::string(op_name(f.op)).c_str(), worst);
  }
};

TEST_P(SimdMath, IsWithinItsBoundOfTheExactValue) {
  expect_within(GetParam().max_ulp);
}

// Where there is no FMA, what is promised of all.
TEST_P(SimdMath, IsWithinThreeUlpWithoutVectors) {
  const OnTarget baseline(HWY_SCALAR);
  expect_within(3);
}

INSTANTIATE_TEST_SUITE_P(All, SimdMath,
                         ::testing::Values(Function{OpKind::kExp, std::exp, 1, -104, 89},
                                           Function{OpKind::kExpm1, std::expm1, 1.5, -20, 89},
                                           Function{OpKind::kLog, std::log, 0.85, 1e-3, 100},
                                           Function{OpKind::kLog1p, std::log1p, 0.85, -1, 100},
                                           Function{OpKind::kTanh, std::tanh, 2.5, -10, 10},
                                           Function{OpKind::kSin, std::sin, 1.6, -1000, 1000},
                                           Function{OpKind::kCos, std::cos, 1.6, -1000, 1000},
                                           Function{OpKind::kSqrt, std::sqrt, 0.5, 0, 100},
                                           Function{OpKind::kRsqrt, rsqrt, 1.5, 0, 100},
                                           Function{OpKind::kLogistic, logistic, 2.5, -104, 20},
                                           Function{OpKind::kErf, std::erf, 1, -4.5, 4.5},
                                           Function{OpKind::kErfc, std::erfc, 3, -5, 11},
                                           Function{OpKind::kErfInv, erf_inv, 2.5, -1, 1},
                                           Function{OpKind::kTan, std::tan, 2.7, -1000, 1000},
                                           Function{OpKind::kAsin, std::asin, 2.5, -1, 1},
                                           Function{OpKind::kAcos, std::acos, 1.5, -1, 1},
                                           Function{OpKind::kAtan, std::atan, 2.5, -20, 20},
                                           Function{OpKind::kSinh, std::sinh, 2, -89.5, 89.5},
                                           Function{OpKind::kCosh, std::cosh, 1.5, -89.5, 89.5},
                                           Function{OpKind::kAsinh, std::asinh, 2, -5000, 5000},
                                           Function{OpKind::kAcosh, std::acosh, 2, 1, 5000},
                                           Function{OpKind::kAtanh, std::atanh, 2, -1, 1},
                                           Function{OpKind::kCbrt, std::cbrt, 1, -100, 100}),
                         [](const auto& info) { return std::string(op_name(info.param.op)); });

// Pairs of operands: all special values with one another, and many sizes.
struct Pairs {
  std::vector<float> a, b;
};
Pairs pairs() {
  Pairs p;
  const std::vector<float> specials = {
      0.0f,   -0.0f,    1,      -1,      2,        -2,         3,          -3,
      0.5f,   -0.5f,    kInf,   -kInf,   kNaN,     kDenormal,  -kDenormal, 1e30f,
      -1e30f, 16777216, 1e-30f, 8388609, -8388609, 1.0000001f, 0.9999999f, 3e38f};
  for (float x : specials)
    for (float y : specials) p.a.push_back(x), p.b.push_back(y);
  const std::vector<float> bases = sweep(100);
  for (size_t i = 0; i < bases.size(); ++i)
    for (float y : {2.0f, 3.0f, -1.0f, 0.5f, 1.5f, -0.75f, static_cast<float>(i % 97) - 48.3f})
      p.a.push_back(bases[i]), p.b.push_back(y);
  return p;
}
void expect_pairs_within(OpKind op, double (*exact)(double, double), double most) {
  const Pairs p = pairs();
  const std::vector<float> y = apply(op, p.a, p.b), turned = apply(op, p.b, p.a);
  double worst = 0;
  for (size_t i = 0; i < p.a.size(); ++i) {
    const double error = ulps(y[i], exact(double{p.a[i]}, double{p.b[i]}));
    ASSERT_LE(error, most) << op_name(op) << " of " << p.a[i] << " and " << p.b[i] << " is not "
                           << y[i];
    const double other = ulps(turned[i], exact(double{p.b[i]}, double{p.a[i]}));
    ASSERT_LE(other, most) << op_name(op) << " of " << p.b[i] << " and " << p.a[i] << " is not "
                           << turned[i];
    worst = std::max({worst, error, other});
  }
  std::printf("%s: %.3f ulp\n", std::string(op_name(op)).c_str(), worst);
}
double pow64(double a, double b) {
  return std::pow(a, b);
}
double atan2_64(double a, double b) {
  return std::atan2(a, b);
}
double fmod64(double a, double b) {
  return std::fmod(a, b);
}

TEST(SimdMathOfTwo, IsWithinItsBoundOfTheExactValue) {
  expect_pairs_within(OpKind::kPow, pow64, 1);
  expect_pairs_within(OpKind::kAtan2, atan2_64, 2.6);
  expect_pairs_within(OpKind::kRem, fmod64, 0);
}
TEST(SimdMathOfTwo, IsWithinItsBoundWithoutVectors) {
  const OnTarget baseline(HWY_SCALAR);
  expect_pairs_within(OpKind::kPow, pow64, 1);
  expect_pairs_within(OpKind::kAtan2, atan2_64, 3);
  expect_pairs_within(OpKind::kRem, fmod64, 0);
}

// A lane's bits may depend neither on its place nor on its neighbours, and an array's tail goes
// the same way as the rest.
TEST(SimdMathLanes, PlaceDoesNotChangeBits) {
  const std::vector<float> x = sweep(20);
  std::vector<float> y(x.rbegin(), x.rend());
  for (int k = 0; k < kNumOps; ++k) {
    const auto op = static_cast<OpKind>(k);
    if (!is_math_op(op)) continue;
    const std::vector<float> whole = apply(op, x, y);
    std::vector<float> single(x.size());
    for (size_t i = 0; i < x.size(); ++i) apply_math_f32(op, &x[i], &y[i], &single[i], 1);
    EXPECT_TRUE(same_bits(whole, single)) << op_name(op);
  }
}

// Not promised across machines, but it holds and helps when machines are mixed.
TEST(SimdMathLanes, Avx2AndAvx512Agree) {
  constexpr int64_t kAvx2 = int64_t{1} << 9, kAvx3 = int64_t{1} << 8;
  if ((hwy::SupportedTargets() & kAvx3) == 0) GTEST_SKIP() << "no AVX-512 here";
  const std::vector<float> x = sweep(100);
  std::vector<float> y(x.rbegin(), x.rend());
  for (int k = 0; k < kNumOps; ++k) {
    const auto op = static_cast<OpKind>(k);
    if (!is_math_op(op)) continue;
    const std::vector<float> best = apply(op, x, y);
    const OnTarget target(kAvx2);
    const std::vector<float> avx2 = apply(op, x, y);
    EXPECT_TRUE(same_bits(best, avx2)) << op_name(op);
  }
}

}  // namespace
}  // namespace stow::cpu
