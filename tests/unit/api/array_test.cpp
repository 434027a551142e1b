#include "stowage/api/array.h"

#include <gtest/gtest.h>

#include <cmath>

#include "stowage/api/at.h"
#include "stowage/api/counting.h"
#include "stowage/api/elements.h"
#include "stowage/api/math.h"
#include "stowage/api/nn.h"
#include "stowage/api/random.h"
#include "stowage/api/reduce.h"
#include "stowage/api/special.h"
#include "stowage/api/trace.h"

namespace stow {
namespace {

Array of(DType dtype, Shape shape = {4}) {
  return Array::abstract(std::move(shape), dtype);
}

std::string type_of(const Array& x) {
  return to_string(x.type()) + (x.type().weak ? " weak" : "");
}

TEST(Array, OfAVectorHasOneAxis) {
  const std::vector<float> data = {1.5f, 2.5f, 3.5f};
  EXPECT_EQ(to_string(Array::from(data).type()), "f32[3]");
  EXPECT_EQ(Array::from(data).to_vector<float>(), data);
  EXPECT_EQ(Array::from(data, DType::kI32).to_vector<int>(), (std::vector{1, 2, 3}));
  EXPECT_EQ(to_string(Array::from(std::vector{7}, {}).type()), "i32[]");
  EXPECT_EQ(to_string(Array::from(data, {3, 1}).type()), "f32[3,1]");
  EXPECT_EQ(to_string(Array::from(std::vector<double>()).type()), "f64[0]");
}

TEST(Array, HoldsDataOfEveryDtype) {
  const Array x = Array::from({1.5f, -2.0f, 0.0f, 300.0f}, {2, 2});
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{1.5f, -2, 0, 300}));
  EXPECT_EQ(x.to_vector<int>(), (std::vector<int>{1, -2, 0, 300}));
  EXPECT_EQ(x.to_vector<bool>(), (std::vector<bool>{true, true, false, true}));
  EXPECT_EQ(x.to_vector<double>()[0], 1.5);
  for (int t = 0; t < kNumDTypes; ++t) {
    const auto dtype = static_cast<DType>(t);
    const Array y = Array::from({1, 0, 1}, {3}, dtype);
    EXPECT_EQ(type_of(y), std::string(dtype_name(dtype)) + "[3]");
    EXPECT_EQ(y.to_vector<int>(), (std::vector<int>{1, 0, 1})) << dtype_name(dtype);
  }
  EXPECT_EQ(x.dim(-1), 2);
  EXPECT_EQ(x.size(), 4);
  EXPECT_TRUE(x.is_concrete());
  EXPECT_TRUE(Array::from(std::vector<float>{}, {0, 3}).to_vector<float>().empty());
}

TEST(Array, ScalarsAreWeakUntilToldOtherwise) {
  EXPECT_EQ(type_of(Array(2.0)), "f32[] weak");
  EXPECT_EQ(type_of(Array(2)), "i32[] weak");
  EXPECT_EQ(type_of(Array(int64_t{1} << 40)), "i64[] weak");
  EXPECT_EQ(type_of(Array(~uint64_t{0})), "u64[] weak");
  EXPECT_EQ(type_of(Array(true)), "bool[]");
  EXPECT_EQ(type_of(Array::scalar(2.0, DType::kBF16)), "bf16[]");
  EXPECT_EQ(Array(2.5).item<double>(), 2.5);
  EXPECT_EQ(Array(~uint64_t{0}).item<uint64_t>(), ~uint64_t{0});
  EXPECT_TRUE(Array(3));
  EXPECT_FALSE(Array(0.0));
}

struct Promotion {
  const char* what;
  Array result;
  const char* type;
};

TEST(Array, PromotesAsJaxDoes) {
  const Array bf16 = of(DType::kBF16), f32 = of(DType::kF32), f64 = of(DType::kF64),
              i32 = of(DType::kI32), u32 = of(DType::kU32), i8 = of(DType::kI8),
              f16 = of(DType::kF16), flag = of(DType::kBool);
  const Promotion table[] = {
      {"bf16 * 2.0", bf16 * 2.0, "bf16[4]"},
      {"2 * bf16", 2 * bf16, "bf16[4]"},
      {"bf16 + f32", bf16 + f32, "f32[4]"},
      {"bf16 + f16", bf16 + f16, "f32[4]"},
      {"f64 * 0.1", f64 * 0.1, "f64[4]"},
      {"i32 * 2", i32 * 2, "i32[4]"},
      {"i32 * 2.0", i32 * 2.0, "f32[4] weak"},
      {"i8 + 1", i8 + 1, "i8[4]"},
      {"u32 + i32", u32 + i32, "i64[4]"},
      {"u32 + 1", u32 + 1, "u32[4]"},
      {"i32 + bf16", i32 + bf16, "bf16[4]"},
      {"bool + 1", flag + 1, "i32[4] weak"},
      {"i32 / i32", i32 / i32, "f32[4]"},
      {"i32 / 2", i32 / 2, "f32[4]"},
      {"f32 < 1", f32 < 1, "bool[4]"},
      {"bool & bool", flag & flag, "bool[4]"},
      {"exp(i32)", exp(i32), "f32[4]"},
      {"softplus(i32)", softplus(i32), "f32[4]"},
      {"reciprocal(bool)", reciprocal(flag), "f32[4]"},
      {"insert into a full", insert(full({2}, 2.0), 0, 1.0), "f32[3] weak"},
      {"reduce_precision of a full", reduce_precision(full({2}, 2.0), 5, 2), "f32[2] weak"},
      {"bincount of bools", bincount(flag, 2), "i32[2]"},
      {"sqrt(bf16)", sqrt(bf16), "bf16[4]"},
      {"where", where(flag, bf16, 0.0), "bf16[4]"},
      {"where of scalars", where(flag, 1.0, 0.0), "f32[4] weak"},
      {"2.0 + 3 as arrays", Array(2.0) + of(DType::kF16, {}), "f16[]"},
      {"astype", f32.astype(DType::kI8), "i8[4]"},
      {"pow", pow(i32, 3), "i32[4]"},
      {"%", i32 % 3, "i32[4]"},
      {"<<", u32 << 3, "u32[4]"},
      {"full of a number", full({4}, 2.0), "f32[4] weak"},
      {"full of a number as f32", full({4}, 2.0, DType::kF32), "f32[4]"},
      {"full of a bool", full({4}, true), "bool[4]"},
      {"full * bf16", full({4}, 2.0) * bf16, "bf16[4]"},
      {"zeros_like of a scalar", zeros_like(Array(2)), "i32[] weak"},
      {"i8 + ones_like(2)", i8 + ones_like(2), "i8[4]"},
      {"zeros_like", zeros_like(bf16), "bf16[4]"},
      {"sum of scalars", sum(full({4}, 2.0)), "f32[]"},
      {"cumsum of scalars", cumsum(full({4}, 2.0)), "f32[4]"},
      {"set in a full", full({4}, 2.0).at({0}).set(1.0) * bf16, "bf16[4]"},
      {"max of scalars", max(full({4}, 2)) + i8, "i32[4]"},
  };
  for (const Promotion& row : table) EXPECT_EQ(type_of(row.result), row.type) << row.what;
}

TEST(Array, AbstractArraysGiveAbstractResults) {
  const Array x = of(DType::kF32, {8, 1, 4}), y = of(DType::kF32, {3, 1});
  const Array z = exp(x + y);
  EXPECT_TRUE(z.is_abstract());
  EXPECT_EQ(type_of(z), "f32[8,3,4]");
}

TEST(Array, OperatorsLeaveCppScalarsAlone) {
  static_assert(std::is_same_v<decltype(1 + 2.0), double>);
  static_assert(std::is_same_v<decltype(1.0 == 2.0), bool>);
  enum Plain { kA, kB };
  static_assert(std::is_same_v<decltype(kA | kB), int>);
}

TEST(Elements, ConvertEveryPairOfDtypes) {
  for (int s = 0; s < kNumDTypes; ++s)
    for (int d = 0; d < kNumDTypes; ++d) {
      const auto from = static_cast<DType>(s), to = static_cast<DType>(d);
      const double values[3] = {0, 1, 1};
      std::vector<std::byte> a(24), b(24);
      double back[3];
      convert_elements(values, DType::kF64, a.data(), from, 3);
      convert_elements(a.data(), from, b.data(), to, 3);
      convert_elements(b.data(), to, back, DType::kF64, 3);
      EXPECT_TRUE(std::equal(values, values + 3, back)) << dtype_name(from) << dtype_name(to);
    }
}

TEST(Elements, RoundToNearestEven) {
  const auto through = [](double x, DType dtype) {
    std::byte bytes[8];
    double back;
    convert_elements(&x, DType::kF64, bytes, dtype, 1);
    convert_elements(bytes, dtype, &back, DType::kF64, 1);
    return back;
  };
  EXPECT_EQ(through(1 + 0x1p-11, DType::kF16), 1);  // a tie, to even
  EXPECT_EQ(through(1 + 0x3p-11, DType::kF16), 1 + 0x1p-9);
  EXPECT_EQ(through(65504, DType::kF16), 65504);
  EXPECT_EQ(through(65520, DType::kF16), INFINITY);
  EXPECT_EQ(through(0x1p-24, DType::kF16), 0x1p-24);  // the smallest subnormal
  EXPECT_EQ(through(0x1p-25, DType::kF16), 0);
  EXPECT_EQ(through(1 + 0x1p-8, DType::kBF16), 1);
  EXPECT_EQ(through(1 + 0x3p-8, DType::kBF16), 1 + 0x1p-6);
  EXPECT_TRUE(std::isnan(through(NAN, DType::kBF16)));
  EXPECT_TRUE(std::isnan(through(NAN, DType::kF16)));
  EXPECT_EQ(through(300, DType::kU8), 255);
  EXPECT_EQ(through(-5, DType::kU32), 0);
  EXPECT_EQ(through(-1e300, DType::kI64), -0x1p63);
  EXPECT_EQ(through(NAN, DType::kI32), 0);
}

TEST(Random, KeysAreTheSeedsTwoWords) {
  EXPECT_EQ(random::key(0x1234567890abcdef).to_vector<uint32_t>(),
            (std::vector<uint32_t>{0x12345678, 0x90abcdef}));
}

}  // namespace
}  // namespace stow
