#include "stowage/runtime/reference/reference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "stowage/runtime/reference/element.h"
#include "tests/support/test_tensor.h"

// Golden values are from NumPy 2.4, SciPy 1.17 and JAX 0.10 on the CPU unless they follow from the
// definition.

namespace stow {
namespace {

using ::testing::ElementsAre;
using testing::TestTensor;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int32_t kMin32 = std::numeric_limits<int32_t>::min();
constexpr int64_t kMin64 = std::numeric_limits<int64_t>::min();

// Equal, with any NaN equal to any other, and zeros of different sign not.
template <typename T>
void expect_same(const std::vector<T>& got, const std::vector<T>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if constexpr (std::is_floating_point_v<T>) {
      if (std::isnan(want[i])) {
        EXPECT_TRUE(std::isnan(got[i])) << i << ": " << got[i];
        continue;
      }
      EXPECT_EQ(std::signbit(got[i]), std::signbit(want[i])) << i << ": " << got[i];
    }
    EXPECT_EQ(got[i], want[i]) << i;
  }
}

template <typename R>
std::vector<R> eval(OpKind op, const Params& params, const std::vector<TestTensor*>& inputs,
                    Dims out_dims) {
  std::vector<TensorView> in;
  for (TestTensor* t : inputs) in.push_back(t->view);
  TestTensor out(testing::dtype_of<R>(), std::move(out_dims));
  const TensorView y = out.view;
  reference_eval(op, params, in, {&y, 1});
  EXPECT_TRUE(out.guards_intact());
  return out.values<R>();
}

template <typename T, typename R = T>
std::vector<R> unary(OpKind op, const std::vector<T>& x, const Params& params = {}) {
  auto a = TestTensor::of<T>({static_cast<int64_t>(x.size())}, x);
  return eval<R>(op, params, {&a}, a.view.dims);
}
template <typename T, typename R = T>
std::vector<R> binary(OpKind op, const std::vector<T>& x, const std::vector<T>& y) {
  auto a = TestTensor::of<T>({static_cast<int64_t>(x.size())}, x);
  auto b = TestTensor::of<T>({static_cast<int64_t>(y.size())}, y);
  return eval<R>(op, {}, {&a, &b}, a.view.dims);
}

TEST(Reference, IntegerDivisionTruncatesAndHasNoTraps) {
  const std::vector<int32_t> a = {7, -7, 7, -7, 5, kMin32, 0}, b = {2, 2, -2, -2, 0, -1, 0};
  expect_same(binary(OpKind::kDiv, a, b), {3, -3, -3, 3, -1, kMin32, -1});
  expect_same(binary(OpKind::kRem, a, b), {1, -1, 1, -1, 5, 0, 0});
  expect_same(binary<int64_t>(OpKind::kDiv, {kMin64, 9}, {-1, 0}), {kMin64, -1});
  expect_same(binary<int64_t>(OpKind::kRem, {kMin64, 9}, {-1, 0}), {0, 9});
  expect_same(binary<uint8_t>(OpKind::kDiv, {200, 200}, {3, 0}), {66, 255});
  expect_same(binary<uint64_t>(OpKind::kDiv, {~uint64_t{0}}, {2}), {~uint64_t{0} / 2});
  expect_same(binary<int8_t>(OpKind::kMul, {100}, {3}), {44});
  expect_same(unary<int32_t>(OpKind::kNeg, {kMin32, 3}), {kMin32, -3});
  expect_same(unary<int32_t>(OpKind::kAbs, {kMin32, -3}), {kMin32, 3});
  expect_same(binary<int32_t>(OpKind::kPow, {2, -1, -1, 0, 1, 3}, {-1, -3, -2, -1, -5, 3}),
              {0, -1, 1, 0, 1, 27});
  expect_same(unary<uint8_t>(OpKind::kNot, {0x0f}), {0xf0});
  expect_same(unary<bool>(OpKind::kNot, {true, false}), {false, true});
}

TEST(Reference, ShiftsBeyondTheWidth) {
  expect_same(binary<int32_t>(OpKind::kShiftLeft, {1, 1, -1, 1}, {31, 32, 33, -1}),
              {kMin32, 0, 0, 0});
  expect_same(binary<int32_t>(OpKind::kShiftRight, {-8, -8, 8, -1}, {1, 32, 40, -1}),
              {-4, -1, 0, -1});
  expect_same(binary<uint32_t>(OpKind::kShiftRight, {0x80000000u, 5}, {31, 32}), {1, 0});
  expect_same(binary<int8_t>(OpKind::kShiftRight, {-128, 64}, {8, 6}), {-1, 1});
}

TEST(Reference, ComparesBySign) {
  expect_same(binary<uint64_t, bool>(OpKind::kLt, {1, ~uint64_t{0}}, {~uint64_t{0}, 1}),
              {true, false});
  expect_same(binary<int64_t, bool>(OpKind::kLt, {1, -1}, {-1, 1}), {false, true});
  expect_same(binary<float, bool>(OpKind::kNe, {kNaN, 0}, {kNaN, -0.0f}), {true, false});
  expect_same(binary<float, bool>(OpKind::kGe, {kNaN, 0}, {0, -0.0f}), {false, true});
  expect_same(binary<float, bool>(OpKind::kLe, {kNaN, 2}, {kNaN, 1}), {false, false});
}

TEST(Reference, FloatSpecialValues) {
  expect_same(binary<float>(OpKind::kMax, {kNaN, 1, -0.0f, 2}, {1, kNaN, 0, -kInf}),
              {kNaN, kNaN, 0, 2});
  expect_same(binary<float>(OpKind::kMin, {kNaN, 1, -0.0f, 2}, {1, kNaN, 0, -kInf}),
              {kNaN, kNaN, -0.0f, -kInf});
  expect_same(unary<float>(OpKind::kSign, {kNaN, -0.0f, 0, -3, kInf}), {kNaN, -0.0f, 0, -1, 1});
  expect_same(unary<float>(OpKind::kRound, {0.5f, 1.5f, 2.5f, -0.5f, -1.5f}), {0, 2, 2, -0.0f, -2});
  expect_same(binary<float>(OpKind::kRem, {7.5f, -7.5f, 1, 3}, {2, 2, 0, kInf}),
              {1.5f, -1.5f, kNaN, 3});
  expect_same(unary<float>(OpKind::kRsqrt, {4, 0, -1}), {0.5f, kInf, kNaN});
  expect_same(unary<float, bool>(OpKind::kIsFinite, {1, kInf, kNaN}), {true, false, false});
  // Exact in double, rounded once: 1 + 2^-24 ties to 1, 1 + 3 * 2^-24 to 1 + 2^-22.
  expect_same(binary<float>(OpKind::kAdd, {1, 1}, {0x1p-24f, 0x3p-24f}), {1, 1 + 0x1p-22f});
}

TEST(Reference, Functions) {
  const std::vector<double> y = {1e-12, 0.1, 0.5, 0.9, 0.999999, 1 - 0x1p-53, -0.3};
  const std::vector<double> want = {8.86226925452758e-13, 0.08885599049425769, 0.4769362762044699,
                                    1.1630871536766743,   3.458910737275499,   5.8635847487551676,
                                    -0.2724627147267544};
  const auto got = unary(OpKind::kErfInv, y);
  for (size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(got[i] / want[i], 1, 1e-14) << y[i];
  expect_same(unary<double>(OpKind::kErfInv, {1, -1, 1.5, -0.0}),
              {double{kInf}, -double{kInf}, double{kNaN}, -0.0});
  const std::vector<double> x = {-800, -40, -1, 0, 1, 40};
  const std::vector<double> logistic = {0.0, 4.248354255291589e-18, 0.2689414213699951,
                                        0.5, 0.7310585786300049,    1.0};
  const auto l = unary(OpKind::kLogistic, x);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(l[i], logistic[i], 4e-16 * logistic[i]);
  EXPECT_FLOAT_EQ(unary<float>(OpKind::kExpm1, {1e-6f})[0], 1.0000005e-6f);
  EXPECT_FLOAT_EQ(unary<float>(OpKind::kLog1p, {1e-6f})[0], 9.999995e-7f);
}

TEST(Reference, ConvertSaturates) {
  const std::vector<float> x = {kNaN, 1e20f, -1e20f, -1.9f, 2.9f, 300, -5};
  const Params any = DTypeParams{};
  expect_same(unary<float, int32_t>(OpKind::kConvert, x, any),
              {0, 2147483647, kMin32, -1, 2, 300, -5});
  expect_same(unary<float, uint8_t>(OpKind::kConvert, x, any), {0, 255, 0, 0, 2, 255, 0});
  expect_same(unary<float, int64_t>(OpKind::kConvert, {1e20f, -1e20f, 5e18f}, any),
              {std::numeric_limits<int64_t>::max(), kMin64, 4999999990253223936});
  expect_same(unary<float, uint64_t>(OpKind::kConvert, {1e20f, 1e19f, -1}, any),
              {~uint64_t{0}, 9999999980506447872u, 0});
  expect_same(unary<float, bool>(OpKind::kConvert, {kNaN, 0, -0.0f, 0.1f}, any),
              {true, false, false, true});
  expect_same(unary<int32_t, uint8_t>(OpKind::kConvert, {-1, 257}, any), {255, 1});
  expect_same(unary<int32_t, uint64_t>(OpKind::kConvert, {-1}, any), {~uint64_t{0}});
  expect_same(unary<uint32_t, int64_t>(OpKind::kConvert, {~0u}, any), {4294967295});
  // One rounding: through double this would be a tie and go down.
  expect_same(
      unary<int64_t, float>(OpKind::kConvert, {(int64_t{1} << 60) + (1 << 30) * 64LL + 1}, any),
      {0x1.000002p60f});
  expect_same(unary<uint64_t, double>(OpKind::kConvert, {~uint64_t{0}}, any), {0x1p64});
}

TEST(Reference, HalfEncodings) {
  using ref::encode16;
  const std::vector<std::pair<double, uint16_t>> f16 = {
      {65504, 0x7bff},       {65519.99, 0x7bff}, {65520, 0x7c00},        {0x1p-24, 1},
      {0x1p-25, 0},          {0x1.0007p-25, 1},  {1.0009765625, 0x3c01}, {1 + 0x1p-11, 0x3c00},
      {1 + 0x3p-11, 0x3c02}, {6e-5, 0x3ef},      {-0.0, 0x8000}};
  for (auto [value, bits] : f16) EXPECT_EQ(encode16(value, 10), bits) << value;
  const std::vector<std::pair<float, uint16_t>> bf16 = {
      {1.00390625f, 0x3f80}, {1.01171875f, 0x3f82}, {3.4e38f, 0x7f80}, {1e-40f, 1},
      {kNaN, 0x7fc0},        {-0.0f, 0x8000},       {65504, 0x4780}};
  for (auto [value, bits] : bf16) EXPECT_EQ(encode16(value, 7), bits) << value;
  for (int mantissa : {7, 10})
    for (uint32_t b = 0; b < 0x10000; ++b) {
      const double value = ref::decode16(static_cast<uint16_t>(b), mantissa);
      if (!std::isnan(value)) {
        ASSERT_EQ(encode16(value, mantissa), b);
      }
    }
}

TEST(Reference, RandomBitsAreThoseOfJax) {
  auto zero = TestTensor::of<uint32_t>({2}, {0, 0});
  expect_same(eval<uint32_t>(OpKind::kRandomBits, ShapeParams{{8}}, {&zero}, {8}),
              {0xf29a4fa7, 0xfa843692, 0x55110e28, 0x77faa835, 0x91e43bb7, 0x2a5e6943, 0x4f68ea7d,
               0xb081ccfe});
  auto key = TestTensor::of<uint32_t>({2}, {0x12345678, 0x9abcdef0});
  expect_same(eval<uint32_t>(OpKind::kRandomBits, ShapeParams{{2, 3}}, {&key}, {2, 3}),
              {0x4d9370ba, 0x2510c99e, 0xc940ecb8, 0x8bff39d1, 0x1b5d82b4, 0xc4597e52});
  auto first = TestTensor::of<int64_t>({}, {4});
  expect_same(eval<uint32_t>(OpKind::kRandomBits, ShapeParams{{2}}, {&key, &first}, {2}),
              {0x1b5d82b4, 0xc4597e52});
}

TEST(Reference, PadWithNegativeAndInteriorCounts) {
  auto zero = TestTensor::of<int32_t>({}, {0}), nine = TestTensor::of<int32_t>({}, {9});
  auto x = TestTensor::of<int32_t>({5}, {1, 2, 3, 4, 5});
  auto z = TestTensor::of<int32_t>({4}, {1, 2, 3, 4});
  expect_same(eval<int32_t>(OpKind::kPad, PadParams{{-1}, {2}, {1}}, {&x, &zero}, {10}),
              {0, 2, 0, 3, 0, 4, 0, 5, 0, 0});
  expect_same(eval<int32_t>(OpKind::kPad, PadParams{{2}, {-3}, {0}}, {&x, &zero}, {4}),
              {0, 0, 1, 2});
  expect_same(eval<int32_t>(OpKind::kPad, PadParams{{-2}, {-1}, {2}}, {&z, &nine}, {7}),
              {9, 2, 9, 9, 3, 9, 9});
}

TEST(Reference, Movement) {
  auto x = TestTensor::of<int32_t>({2, 3}, {0, 1, 2, 3, 4, 5});
  expect_same(eval<int32_t>(OpKind::kTranspose, AxesParams{{1, 0}}, {&x}, {3, 2}),
              {0, 3, 1, 4, 2, 5});
  expect_same(eval<int32_t>(OpKind::kReshape, ShapeParams{{3, 2}}, {&x}, {3, 2}),
              {0, 1, 2, 3, 4, 5});
  expect_same(eval<int32_t>(OpKind::kReverse, AxesParams{{1}}, {&x}, {2, 3}), {2, 1, 0, 5, 4, 3});
  expect_same(eval<int32_t>(OpKind::kSlice, SliceParams{{0, 0}, {2, 3}, {1, 2}}, {&x}, {2, 2}),
              {0, 2, 3, 5});
  auto row = TestTensor::of<int32_t>({1, 3}, {7, 8, 9});
  expect_same(eval<int32_t>(OpKind::kBroadcast, BroadcastParams{{3, 2}, {1, 0}}, {&row}, {3, 2}),
              {7, 7, 8, 8, 9, 9});
  expect_same(eval<int32_t>(OpKind::kConcatenate, AxisParams{0}, {&x, &row}, {3, 3}),
              {0, 1, 2, 3, 4, 5, 7, 8, 9});
  auto two = TestTensor::of<int32_t>({}, {2}), minus = TestTensor::of<int8_t>({}, {-4});
  expect_same(eval<int32_t>(OpKind::kDynamicSlice, ShapeParams{{1, 2}}, {&x, &minus, &two}, {1, 2}),
              {1, 2});
  auto update = TestTensor::of<int32_t>({1, 2}, {70, 80});
  expect_same(eval<int32_t>(OpKind::kDynamicUpdateSlice, {}, {&x, &update, &two, &minus}, {2, 3}),
              {0, 1, 2, 70, 80, 5});
  auto huge = TestTensor::of<uint64_t>({}, {~uint64_t{0}});
  expect_same(eval<int32_t>(OpKind::kDynamicSlice, ShapeParams{{1, 1}}, {&x, &huge, &huge}, {1, 1}),
              {5});
}

// lax.gather(mode="clip"), lax.scatter_add(mode="drop") with the same dimension numbers.
TEST(Reference, GatherClampsAndScatterDrops) {
  std::vector<int32_t> values(24), updates(16);
  for (size_t i = 0; i < 24; ++i) values[i] = static_cast<int32_t>(i);
  for (size_t i = 0; i < 16; ++i) updates[i] = static_cast<int32_t>(i + 1);
  auto x = TestTensor::of<int32_t>({2, 3, 4}, values);
  auto zeros = TestTensor::of<int32_t>({2, 3, 4}, std::vector<int32_t>(24, 0));
  auto indices = TestTensor::of<int64_t>({4, 2}, {0, 0, 3, 1, -5, 7, 1, 2});
  auto u = TestTensor::of<int32_t>({2, 4, 2}, updates);
  const GatherParams params{{0, 2}, {1}, {2, 1}, {2, 1, 2}};
  expect_same(eval<int32_t>(OpKind::kGather, params, {&x, &indices}, {2, 4, 2}),
              {0, 1, 6, 7, 8, 9, 9, 10, 12, 13, 18, 19, 20, 21, 21, 22});
  expect_same(eval<int32_t>(OpKind::kScatterAdd, params, {&zeros, &indices, &u}, {2, 3, 4}),
              {1, 2, 0, 0, 0, 0, 0, 0, 0, 7, 8, 0, 9, 10, 0, 0, 0, 0, 0, 0, 0, 15, 16, 0});
  // A window in range in part is dropped whole.
  auto five = TestTensor::of<float>({5}, {0, 0, 0, 0, 0});
  auto starts = TestTensor::of<int32_t>({3, 1}, {3, -1, 1});
  auto windows = TestTensor::of<float>({3, 3}, {1, 2, 3, 10, 20, 30, 100, 200, 300});
  expect_same(eval<float>(OpKind::kScatterAdd, GatherParams{{1}, {}, {0}, {3}},
                          {&five, &starts, &windows}, {5}),
              {0, 100, 200, 300, 0});
}

TEST(Reference, SortIsStableWithNaNLargest) {
  auto key = TestTensor::of<float>({6}, {3, kNaN, -0.0f, 0, -kInf, 1});
  auto tag = TestTensor::of<int32_t>({6}, {0, 1, 2, 3, 4, 5});
  TestTensor sorted(DType::kF32, {6}), order(DType::kI32, {6});
  const std::vector<TensorView> in = {key.view, tag.view}, out = {sorted.view, order.view};
  reference_eval(OpKind::kSort, AxisParams{0, false}, in, out);
  expect_same(sorted.values<float>(), {-kInf, -0.0f, 0, 1, 3, kNaN});
  EXPECT_THAT(order.values<int32_t>(), ElementsAre(4, 2, 3, 5, 0, 1));
  reference_eval(OpKind::kSort, AxisParams{0, true}, in, out);
  EXPECT_THAT(order.values<int32_t>(), ElementsAre(1, 0, 5, 2, 3, 4));
}

TEST(Reference, Reductions) {
  auto x = TestTensor::of<float>({2, 3}, {1, 2, 3, 4, kNaN, 6});
  expect_same(eval<float>(OpKind::kReduceSum, AxesParams{{0}}, {&x}, {3}), {5, kNaN, 9});
  expect_same(eval<float>(OpKind::kReduceMax, AxesParams{{1}}, {&x}, {2}), {3, kNaN});
  expect_same(eval<int64_t>(OpKind::kArgMax, ArgReduceParams{1}, {&x}, {2}), {2, 1});
  expect_same(eval<int32_t>(OpKind::kArgMin, ArgReduceParams{0}, {&x}, {3}), {0, 1, 0});
  auto none = TestTensor::of<float>({2, 0}, {});
  expect_same(eval<float>(OpKind::kReduceMax, AxesParams{{1}}, {&none}, {2}), {-kInf, -kInf});
  expect_same(eval<float>(OpKind::kReduceProd, AxesParams{{1}}, {&none}, {2}), {1, 1});
  auto empty = TestTensor::of<int8_t>({2, 0}, {});
  expect_same(eval<int8_t>(OpKind::kReduceMax, AxesParams{{1}}, {&empty}, {2}), {-128, -128});
  expect_same(eval<int8_t>(OpKind::kReduceMin, AxesParams{{1}}, {&empty}, {2}), {127, 127});
  auto wide = TestTensor::of<uint64_t>({0}, {});
  expect_same(eval<uint64_t>(OpKind::kReduceMin, AxesParams{{0}}, {&wide}, {}), {~uint64_t{0}});
  auto flags = TestTensor::of<bool>({2, 2}, {true, false, true, true});
  expect_same(eval<bool>(OpKind::kReduceAnd, AxesParams{{1}}, {&flags}, {2}), {false, true});
  expect_same(eval<bool>(OpKind::kReduceOr, AxesParams{{0, 1}}, {&flags}, {}), {true});
  auto bytes = TestTensor::of<uint8_t>({4}, {200, 100, 1, 2});
  expect_same(eval<uint8_t>(OpKind::kCumSum, AxisParams{0, false}, {&bytes}, {4}),
              {200, 44, 45, 47});
  expect_same(eval<uint8_t>(OpKind::kCumSum, AxisParams{0, true}, {&bytes}, {4}), {47, 103, 3, 2});
}

TEST(Reference, DotGeneralOrdersBatchThenFree) {
  // lhs [k, b, m], rhs [b, n, k]: result [b, m, n].
  auto lhs = TestTensor::of<int8_t>({2, 1, 2}, {1, 2, 3, 4});
  auto rhs = TestTensor::of<int8_t>({1, 3, 2}, {100, 100, 1, 0, 0, 1});
  const DotParams params{{0}, {2}, {1}, {0}, DType::kI32};
  expect_same(eval<int32_t>(OpKind::kDotGeneral, params, {&lhs, &rhs}, {1, 2, 3}),
              {400, 1, 3, 600, 2, 4});
}

// Golden values from jax.vjp in double; scale 0.5, causal, 3 queries, 2 keys, 2 heads on 1 group.
TEST(Reference, AttentionAndItsGradient) {
  auto q = TestTensor::of<double>(
      {1, 3, 2, 2}, {1.76, 0.4, 0.98, 2.24, 1.87, -0.98, 0.95, -0.15, -0.1, 0.41, 0.14, 1.45});
  auto k = TestTensor::of<double>({1, 2, 1, 2}, {0.76, 0.12, 0.44, 0.33});
  auto v = TestTensor::of<double>({1, 2, 1, 2}, {1.49, -0.21, 0.31, -0.85});
  auto dy = TestTensor::of<double>(
      {1, 3, 2, 2}, {-2.55, 0.65, 0.86, -0.74, 2.27, -1.45, 0.05, -0.19, 1.53, 1.47, 0.15, 0.38});
  TestTensor y(DType::kF64, {1, 3, 2, 2}), lse(DType::kF64, {1, 2, 3});
  TestTensor dq(DType::kF64, {1, 3, 2, 2}), dk(DType::kF64, {1, 2, 1, 2});
  TestTensor dv(DType::kF64, {1, 2, 1, 2});
  const Params params = AttentionParams{0.5f, true, -1};
  const std::vector<TensorView> in = {q.view, k.view, v.view}, out = {y.view, lse.view};
  reference_eval(OpKind::kAttention, params, in, out);
  const std::vector<TensorView> grad_in = {q.view, k.view, v.view, y.view, lse.view, dy.view};
  const std::vector<TensorView> grads = {dq.view, dk.view, dv.view};
  reference_eval(OpKind::kAttentionGrad, params, grad_in, grads);
  const auto near = [](const TestTensor& got, const std::vector<double>& want) {
    const auto values = got.values<double>();
    for (size_t i = 0; i < want.size(); ++i) {
      if (std::isinf(want[i])) {
        EXPECT_EQ(values[i], want[i]);
      } else {
        EXPECT_NEAR(values[i], want[i], 1e-12) << i;
      }
    }
  };
  near(y, {0, 0, 0, 0, 1.49, -0.21, 1.49, -0.21, 0.8825853099831258, -0.5394452556023723,
           0.8617479822464755, -0.5507468570866573});
  near(lse, {-kInf, 0.6518, 0.7097079800616982, -kInf, 0.352, 0.9003783293363923});
  near(dq, {0, 0, 0, 0, 0, 0, 0, 0, 0.1097522983054723, -0.07202494576296618, 0.016737348609537128,
            -0.010983885025008739});
  near(dk,
       {-0.026975003203787595, 0.21646124309085146, 0.026975003203787595, -0.21646124309085146});
  near(dv, {3.132557391195893, -0.749013017856902, 0.8674426088041068, 0.9590130178569019});
}

TEST(Reference, ReadsAndWritesStridedViews) {
  auto x = TestTensor::of<float>({6}, {1, 2, 3, 4, 5, 6});
  const TensorView from = {x.view.data + 5 * sizeof(float), DType::kF32, {2, 3}, {-1, -2}};
  TestTensor y(DType::kF32, {12});
  const TensorView to = {y.view.data, DType::kF32, {2, 3}, {1, 4}};
  reference_eval(OpKind::kNeg, {}, {&from, 1}, {&to, 1});
  const auto got = y.values<float>();
  expect_same<float>({got[0], got[1], got[4], got[5], got[8], got[9]}, {-6, -5, -4, -3, -2, -1});
}

TEST(Reference, ConstantAndIota) {
  const auto bytes = [](std::vector<int32_t> v) {
    std::vector<std::byte> b(v.size() * 4);
    std::memcpy(b.data(), v.data(), b.size());
    return b;
  };
  const ArrayType type{DType::kI32, {2, 2}};
  expect_same(eval<int32_t>(OpKind::kConstant, ConstantParams{type, bytes({7})}, {}, {2, 2}),
              {7, 7, 7, 7});
  expect_same(
      eval<int32_t>(OpKind::kConstant, ConstantParams{type, bytes({1, 2, 3, 4})}, {}, {2, 2}),
      {1, 2, 3, 4});
  expect_same(eval<float>(OpKind::kIota, IotaParams{{DType::kF32, {2, 2}}, 1}, {}, {2, 2}),
              {0, 1, 0, 1});
}

}  // namespace
}  // namespace stow
