// Edges of the API at which users of JAX stand: figures are JAX 0.10's unless said otherwise.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "stowage/stowage.h"
#include "tests/support/message_of.h"

namespace stow {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ApiEdges, ANegativeStartOfADynamicSliceCountsFromTheEnd) {
  const Array x = arange(5);
  const auto part = [&](const Array& start) {
    return dynamic_slice(x, {start}, {2}).to_vector<int32_t>();
  };
  for (const auto& [start, first] : std::vector<std::pair<int32_t, int32_t>>{
           {-2, 3}, {-1, 3}, {-5, 0}, {-9, 0}, {0, 0}, {2, 2}, {7, 3}}) {
    EXPECT_THAT(part(Array(start)), ElementsAre(first, first + 1)) << start;
    const auto traced = jit([&](const Array& s) { return dynamic_slice(x, {s}, {2}); });
    EXPECT_THAT(traced(Array(start)).to_vector<int32_t>(), ElementsAre(first, first + 1)) << start;
  }
  // Of a narrow dtype, for an axis that is longer than it counts.
  const Array start = Array(-1).astype(DType::kI8);
  EXPECT_THAT(dynamic_slice(arange(300), {start}, {1}).to_vector<int32_t>(), ElementsAre(299));
  EXPECT_THAT(dynamic_update_slice(x, Array::from<int32_t>({9}), {Array(-1)}).to_vector<int32_t>(),
              ElementsAre(0, 1, 2, 3, 9));
}

TEST(ApiEdges, NegativePowersHaveTheGradientOfAPower) {
  const auto slope = [](int n, float x) {
    return grad([n](const Array& a) { return pow(a, n); })(Array(x)).item<float>();
  };
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_FLOAT_EQ(slope(-2, 1e-11f), -2e33f);
  EXPECT_EQ(slope(-2, 0.0f), -inf);
  EXPECT_FLOAT_EQ(slope(-2, 1e12f), -2e-36f);
  EXPECT_FLOAT_EQ(slope(-3, 1e-8f), -3e32f);
  EXPECT_FLOAT_EQ(slope(-3, 2.0f), -3.0f / 16);
  EXPECT_FLOAT_EQ(slope(-1, 2.0f), -0.25f);
  const auto second = grad([](const Array& x) {
    return grad([](const Array& a) { return pow(a, -2); })(x);
  });
  EXPECT_FLOAT_EQ(second(Array(2.0f)).item<float>(), 6.0f / 16);
}

TEST(ApiEdges, AnIntegerThatDoesNotFitIsNotCutOff) {
  const Array i = arange(3);
  const int64_t big = int64_t{1} << 40;
  for (const std::string& error :
       {message_of([&] { static_cast<void>(i < big); }), message_of([&] { i * big; }),
        message_of([&] { i + big; }), message_of([&] { minimum(i, -big); }),
        message_of([&] { clip(i, 0, big); })})
    EXPECT_THAT(error, HasSubstr("does not fit i32")) << error;
  EXPECT_THAT((i + int64_t{5}).to_vector<int32_t>(), ElementsAre(5, 6, 7));
  EXPECT_FLOAT_EQ((arange(3).astype(DType::kF32) * big).to_vector<float>()[1], 0x1p40f);
}

TEST(ApiEdges, AllIntegerArgumentsHaveZerosForGradients) {
  GradOptions options;
  options.allow_int = true;
  const auto f = [](const Array& i) { return sum(i.astype(DType::kF32)); };
  EXPECT_EQ(grad(f, options)(arange(2)).shape(), Shape({2}));
  EXPECT_THAT(message_of([&] { grad(f)(arange(2)); }), HasSubstr("nothing to differentiate by"));
}

TEST(ApiEdges, NoPlacesOfAnEmptyAxisAreNone) {
  EXPECT_EQ(zeros({0, 4}).index({zeros({0}, DType::kI32)}).shape(), Shape({0, 4}));
  EXPECT_THAT(message_of([] { zeros({0, 4}).index({zeros({1}, DType::kI32)}); }),
              HasSubstr("is empty"));
}

TEST(ApiEdges, NextafterOfF16StepsThroughEveryNumber) {
  // From each positive number to the next, by its bits.
  const int n = 0x7c00;
  std::vector<float> x;
  for (int k = 0; k <= n; ++k) {
    const int e = k >> 10, m = k & 1023;
    x.push_back(e == 31 ? std::numeric_limits<float>::infinity()
                : e == 0 ? std::ldexp(static_cast<float>(m), -24)
                         : std::ldexp(static_cast<float>(1024 + m), e - 25));
  }
  const Array h = Array::from<float>(x, {static_cast<int64_t>(x.size())}).astype(DType::kF16);
  const std::vector<float> above =
      nextafter(h, std::numeric_limits<float>::infinity()).astype(DType::kF32).to_vector<float>();
  const std::vector<float> below = nextafter(h, -1.0f).astype(DType::kF32).to_vector<float>();
  const std::vector<float> mirrored = nextafter(-h, 1.0f).astype(DType::kF32).to_vector<float>();
  for (size_t k = 0; k < x.size(); ++k) {
    EXPECT_EQ(above[k], k + 1 < x.size() ? x[k + 1] : x[k]) << k;
    EXPECT_EQ(below[k], k > 0 ? x[k - 1] : -x[1]) << k;
    EXPECT_EQ(mirrored[k], -below[k]) << k;
  }
  const Array drawn = random::truncated_normal(random::key(0), -1, 2, {40}, DType::kF16);
  EXPECT_TRUE(all(logical_and(drawn > -1, drawn < 2)).item<bool>());
}

// Strides, padding and dilations are in the order of the kernel's letters: W, then H.
TEST(ApiEdges, AConvolutionsOptionsFollowTheAxesOfTheKernel) {
  const Array x = (arange(24) % 7).astype(DType::kF32).reshape({2, 3, 4, 1});
  const Array k = (arange(4) % 5 + 1).astype(DType::kF32).reshape({2, 1, 2, 1});
  const Array y = conv_general_dilated(x, k,
                                       {.strides = {1, 2},
                                        .padding = {{1, 0}, {2, -1}},
                                        .lhs_dilation = {2, 1},
                                        .rhs_dilation = {1, 2},
                                        .lhs_axes = "NHWC",
                                        .rhs_axes = "WOHI",
                                        .out_axes = "CWNH"});
  EXPECT_EQ(y.shape(), (Shape{1, 7, 2, 1}));
  EXPECT_THAT(y.to_vector<int>(), ElementsAre(0, 20, 0, 10, 4, 24, 2, 12, 8, 0, 4, 0, 12, 4));
}

// In JAX "VALID" is refused as well; here it is the default, and clear.
TEST(ApiEdges, ARuleOfPaddingIsRefusedBesideStretching) {
  const Array x = ones({1, 1, 5}), k = ones({1, 1, 3});
  EXPECT_THAT(
      message_of([&] { conv_general_dilated(x, k, {.padding = "SAME", .lhs_dilation = {2}}); }),
      HasSubstr(
          "expected widths of padding or VALID with lhs_dilation, got a rule; use conv_transpose"));
  EXPECT_EQ(conv_general_dilated(x, k, {.padding = "SAME", .lhs_dilation = {1}}).shape(),
            (Shape{1, 1, 5}));
  EXPECT_EQ(conv_general_dilated(x, k, {.lhs_dilation = {2}}).shape(), (Shape{1, 1, 7}));
}

// x/2 erfc(-x / sqrt 2) and its derivative, by the C library's erfc.
TEST(ApiEdges, ExactGeluKeepsItsLowerTail) {
  const auto exact = [](const Array& x) { return gelu(x, false); };
  for (const auto& [x, y, slope] : std::vector<std::array<double, 3>>{
           {-5, -1.4332578593959731e-06, -7.146946001792295e-06},
           {-6, -5.919525870226207e-09, -3.5468709453902015e-08},
           {-12, -2.1317785344932424e-32, -2.5578956616748956e-31}}) {
    EXPECT_NEAR(exact(Array(static_cast<float>(x))).item<float>() / y, 1, 1e-5) << x;
    EXPECT_NEAR(grad(exact)(Array(static_cast<float>(x))).item<float>() / slope, 1, 1e-3) << x;
    EXPECT_NEAR(exact(Array::scalar(x, DType::kF64)).item<double>() / y, 1, 1e-9) << x;
  }
  EXPECT_NEAR(exact(Array::scalar(-4.0, DType::kBF16)).item<float>() / -1.267e-4, 1, 0.01);
}

TEST(ApiEdges, EinsumOfNarrowIntegersStaysNarrow) {
  const Array a = Array::from<int>({100, 100}, DType::kI8);
  const auto values = [](const Array& y) {
    EXPECT_EQ(y.dtype(), DType::kI8);
    return y.to_vector<int>();
  };
  EXPECT_THAT(values(einsum("i->", {a})), ElementsAre(-56));
  EXPECT_THAT(values(einsum("i,i->", {a, a})), ElementsAre(32));
  EXPECT_THAT(values(einsum("ij,k->k", {a.reshape({2, 1}), a})), ElementsAre(32, 32));
  EXPECT_THAT(values(einsum("ii->", {a.reshape({1, 2}) + zeros({2, 1}, DType::kI8)})),
              ElementsAre(-56));
  EXPECT_EQ(einsum("i->", {a.astype(DType::kU8)}).dtype(), DType::kU8);
}

TEST(ApiEdges, LogGammaIsInfiniteAtEveryPole) {
  for (const float pole : {0.0f, -1.0f, -2.0f, -8388607.0f, -8388608.0f, -8388609.0f, -16777215.0f})
    EXPECT_TRUE(std::isinf(lgamma(Array(pole)).item<float>())) << pole;
  EXPECT_NEAR(lgamma(Array(-2.5f)).item<float>(), -0.05624371649767405, 1e-6);
  EXPECT_NEAR(digamma(Array(-2.5f)).item<float>(), 1.1031566406452432, 1e-6);
}

TEST(ApiEdges, AProductOfIntegersAsFloatsDoesNotWrap) {
  const Array a = Array::from({1 << 30, 3}, {1, 2}), b = Array::from({1 << 30, -5}, {2, 1});
  const Array y = matmul(a, b, DType::kF32);
  EXPECT_EQ(y.dtype(), DType::kF32);
  EXPECT_FLOAT_EQ(y.item<float>(), 1.1529215e18f);
}

TEST(ApiEdges, ABoundOfClampThatIsNoNumberWins) {
  const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
  const Array x = Array::from({0.0f, 2.0f, inf, nan});
  for (const Array& y : {clamp(nan, x, 1.0), clamp(1.0, x, nan), clamp(nan, x, nan)})
    EXPECT_TRUE(all(isnan(y)).item<bool>());
}

TEST(ApiEdges, BoolsHaveMinimaAndMaximaAtPlaces) {
  const auto bools = [](std::initializer_list<int> v) { return Array::from(v, DType::kBool); };
  const Array x = bools({1, 0, 1, 0}), rows = Array::from({0, 1, 1, 3});
  const Array four = bools({1, 1, 0, 0}), three = bools({1, 1, 0});
  EXPECT_THAT(x.at({rows}).min(four).to_vector<int>(), ElementsAre(1, 0, 1, 0));
  EXPECT_THAT(x.at({rows}).max(four).to_vector<int>(), ElementsAre(1, 1, 1, 0));
  EXPECT_THAT(x.at({range(0, 3)}).min(three).to_vector<int>(), ElementsAre(1, 0, 0, 0));
  EXPECT_THAT(x.at({range(0, 3)}).max(three).to_vector<int>(), ElementsAre(1, 1, 1, 0));
  EXPECT_EQ(x.at({0}).max(2).dtype(), DType::kBool);
  const ScatterDimensionNumbers numbers{{}, {0}, {0}};
  const Array places = expand_dims(rows, 1);
  EXPECT_THAT(scatter_min(x, places, four, numbers).to_vector<int>(), ElementsAre(1, 0, 1, 0));
  EXPECT_THAT(scatter_max(x, places, four, numbers).to_vector<int>(), ElementsAre(1, 1, 1, 0));
}

TEST(ApiEdges, SecondDerivativesWhereTheFirstIsInfiniteOrHasNoValue) {
  const double inf = std::numeric_limits<double>::infinity();
  const auto second = [](auto f, double x) {
    return static_cast<double>(grad(grad(f))(Array::scalar(x, DType::kF32)).template item<float>());
  };
  const auto root = [](const Array& x) { return cbrt(x); };
  EXPECT_EQ(second(root, 0), -inf);
  EXPECT_EQ(second(root, -0.0), inf);
  EXPECT_EQ(second(root, inf), 0);
  EXPECT_EQ(second([](const Array& x) { return acosh(x); }, 1), -inf);
  EXPECT_EQ(second([](const Array& x) { return atanh(x); }, inf), 0);
  EXPECT_EQ(second([](const Array& x) { return log1mexp(x); }, -0.0), -inf);
  const auto below = [](const Array& x) { return log1mexp(x); };
  EXPECT_EQ(grad(below)(Array::scalar(-inf, DType::kF32)).item<float>(), -1);
  const auto both = [](const Array& x) { return logaddexp(x, x); };
  EXPECT_EQ(second(both, inf), 0);
}

TEST(ApiEdges, WhatHasNoGradientByAParameterSaysSo) {
  const Array x = Array::from({0.25f, 0.5f});
  const auto by_shape = [&](const Array& a) { return sum(betainc(a, 2.0, x)); };
  EXPECT_THAT(message_of([&] { grad(by_shape)(x + 1); }),
              HasSubstr("by which it is differentiated"));
  EXPECT_THAT(message_of([&] { polygamma(x, x); }),
              HasSubstr("[polygamma] the order must be of integers, got f32"));
}

// Values of SciPy's gammainc, which is right there: a sum over terms would take thousands of them.
TEST(ApiEdges, IncompleteGammaOfALargeShape) {
  const auto at = [](double a, double z) {
    const Array shape = Array::scalar(a, DType::kF64), x = shape + z * sqrt(shape);
    const Array lower = igamma(shape, x), upper = igammac(shape, x);
    EXPECT_NEAR((lower + upper).item<double>(), 1, 1e-14);
    // Along a share of what is below, x moves as a gamma variable does.
    const auto by_shape = grad([&](const Array& v) { return igamma(v, x); })(shape);
    const auto by_x = grad([&](const Array& v) { return igamma(shape, v); })(x);
    // Below 2^20 x^a exp(-x) loses digits: its logarithms are as large as a log(a).
    const double lost = a < 0x1p20 ? 0x1p-52 * a * std::log(a) : 1e-10;
    EXPECT_NEAR((by_shape / by_x + random_gamma_grad(shape, x)).item<double>(), 0, lost);
    EXPECT_NEAR((by_x * sqrt(shape)).item<double>(), std::exp(-z * z / 2) / std::sqrt(2 * M_PI),
                2 / std::sqrt(a));
    return lower.item<double>();
  };
  EXPECT_NEAR(at(1e6, -1), 0.15865521357430365, 1e-10);
  EXPECT_NEAR(at(1e6, 1), 0.8413447863683402, 1e-10);
  EXPECT_NEAR(at(2e6, -1), 0.15865523375708943, 1e-12);
  EXPECT_NEAR(at(2e6, 1), 0.8413447662226322, 1e-12);
  EXPECT_NEAR(at(1e10, -1), 0.15865525392742422, 1e-12);
  EXPECT_NEAR(at(1e10, 1), 0.8413447460725758, 1e-12);
  EXPECT_NEAR(at(1e20, 0), 0.5, 1e-10);
}

// The slope of a gamma variable far below the smallest number: -log(u) / a^2 for a small a.
TEST(ApiEdges, TheSlopeOfALogarithmOfATinyGammaVariable) {
  const auto draw = [](const Array& a) { return random::loggamma(random::key(3), a); };
  const Array a = Array::from({1e-3f, 1e-4f});
  const auto [y, pullback] = vjp(draw, a);
  const Array slope = std::get<0>(pullback(ones_like(y)));
  // y is log(u) / a up to a bounded part.
  EXPECT_TRUE(all(isclose(slope * a, -y, 2e-2)).item<bool>());
}

TEST(ApiEdges, ARangeOfIntegersIsOfIntegers) {
  const int64_t n = 5;
  for (const Array& x : {arange(0, 5), arange(int64_t{0}, n), arange(0, n),
                         arange(size_t{0}, size_t{5}), arange(0, 5, 1), arange(5)}) {
    EXPECT_EQ(x.dtype(), DType::kI32);
    EXPECT_THAT(x.to_vector<int32_t>(), ElementsAre(0, 1, 2, 3, 4));
  }
  EXPECT_THAT(take(arange(10, 20), arange(2, 5)).to_vector<int32_t>(), ElementsAre(12, 13, 14));
  for (const Array& x : {arange(0.0, 2), arange(0, 2.0), arange(0, 2, 1.0), arange(2.0)})
    EXPECT_EQ(x.dtype(), DType::kF32);
  EXPECT_THAT(arange(0, 1, 0.5).to_vector<float>(), ElementsAre(0, 0.5f));
}

// NumPy's rule: of one number all values go there, of a list of one a value.
TEST(ApiEdges, AListOfOnePlaceIsAListToInsert) {
  const Array x = arange(9).reshape({3, 3}), column = Array::from({-1, -2, -3}).reshape({3, 1});
  EXPECT_EQ(insert(x, {1}, column, 1).shape(), Shape({3, 4}));
  EXPECT_THAT(insert(x, {1}, column, 1)[0].to_vector<int32_t>(), ElementsAre(0, -1, 1, 2));
  EXPECT_EQ(insert(x, 1, column, 1).shape(), Shape({3, 6}));
}

TEST(ApiEdges, TheScaleOfAttentionOfF64IsOfF64) {
  const std::vector<Array> keys = random::split(random::key(1), 3);
  const auto draw = [&](size_t i) {
    return random::normal(keys[i], {1, 4, 1, 3}).astype(DType::kF64);
  };
  const Array q = draw(0), k = draw(1), v = draw(2);
  const auto by_hand = [&](double scale) {
    const Array scores = einsum("bthd,bshd->bhts", {q, k}) * scale;
    return einsum("bhts,bshd->bthd", {softmax(scores), v});
  };
  EXPECT_LT(max(abs(attention(q, k, v) - by_hand(1 / std::sqrt(3.0)))).item<double>(), 1e-15);
  EXPECT_LT(max(abs(attention(q, k, v, {.scale = 0.1}) - by_hand(0.1))).item<double>(), 1e-15);
}

TEST(ApiEdges, SincHasAGradientNearZero) {
  const auto slope = [](double x, DType dtype) {
    const Array at = Array::scalar(x, dtype);
    return grad([](const Array& a) { return sinc(a); })(at).astype(DType::kF64).item<double>();
  };
  for (const double x : {0.0, 1e-40, -1e-40, 1e-22, -1e-10, 1e-6, 9.9e-5, 1.01e-4, 0.3})
    for (const DType dtype : {DType::kF32, DType::kF64}) {
      const double y = dtype == DType::kF32 ? static_cast<float>(x) : x, t = M_PI * y;
      const double want = std::abs(t) < 1e-2 ? M_PI * (-t / 3 + t * t * t / 30)
                                             : M_PI * (std::cos(t) / t - std::sin(t) / (t * t));
      EXPECT_NEAR(slope(x, dtype), want, dtype == DType::kF32 ? 2e-3 : 1e-11) << x;
      EXPECT_NEAR(sinc(Array::scalar(y, DType::kF64)).item<double>(), t == 0 ? 1 : std::sin(t) / t,
                  1e-15);
    }
}

}  // namespace
}  // namespace stow
