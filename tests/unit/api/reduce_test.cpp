// logsumexp, and softmax of api/nn, of terms that are all -inf: gradients are 0.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "stowage/stowage.h"

namespace stow {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

const std::vector<DType> kFloats = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16};

using Function = std::function<Array(const Array&)>;
struct Case {
  std::string name;
  Function f;
};

std::vector<double> values(const Array& x) {
  const std::vector<float> wide = x.astype(DType::kF32).to_vector<float>();
  return {wide.begin(), wide.end()};
}

// Rows and columns of -inf throughout have gradients of 0, the other elements finite ones.
TEST(VoidTerms, HaveNoGradient) {
  const auto mask = [](const Array& x) { return x > -1e30; };
  const std::vector<Case> cases = {
      {"logsumexp", [](const Array& x) { return logsumexp(x, 1); }},
      {"logsumexp of columns", [](const Array& x) { return logsumexp(x, 0); }},
      {"logsumexp with b", [](const Array& x) { return logsumexp(x, 1, {}, ones_like(x)); }},
      {"logsumexp where", [=](const Array& x) { return logsumexp(x, 1, {.where = mask(x)}); }},
      {"logmeanexp", [](const Array& x) { return logmeanexp(x, 1); }},
      {"cumlogsumexp", [](const Array& x) { return cumlogsumexp(x, 1); }},
      {"softmax", [](const Array& x) { return softmax(x); }},
      {"softmax of columns", [](const Array& x) { return softmax(x, 0); }},
      {"softmax where", [=](const Array& x) { return softmax(x, -1, mask(x)); }},
      {"log_softmax where", [=](const Array& x) { return log_softmax(x, -1, mask(x)); }},
      {"log_softmax", [](const Array& x) { return log_softmax(x); }},
      {"logaddexp", [](const Array& x) { return logaddexp(x, x); }},
      {"logaddexp2", [](const Array& x) { return logaddexp2(x, x); }},
      {"attention rows that see nothing", [=](const Array& x) {
         return where(mask(x), softmax(x), 0.0) + 0 * where(mask(x), x, 0.0);
       }}};
  for (DType dtype : kFloats)
    for (const Case& c : cases) {
      const Array x = Array::from({-kInf, -kInf, -kInf, 1.0, 2.0, -1.0}, {2, 3}).astype(dtype);
      for (const bool turned : {false, true}) {
        const auto of_columns = c.name.find("columns") != std::string::npos;
        if (turned != of_columns) continue;
        const Array at = turned ? transpose(x) : x;
        const Array g = grad([&](const Array& a) {
          const Array y = c.f(a);
          return sum(where(isfinite(stop_gradient(y)), y, 0.0).astype(DType::kF32));
        })(at);
        const auto [direct] = vjp(c.f, at).second(ones_like(c.f(at)));
        for (const Array& gradient : {g, direct}) {
          const std::vector<double> v = values(turned ? transpose(gradient) : gradient);
          for (size_t i = 0; i < 3; ++i)
            EXPECT_EQ(v[i], 0) << c.name << " " << dtype_name(dtype) << " " << i;
          for (size_t i = 3; i < 6; ++i)
            EXPECT_TRUE(std::isfinite(v[i])) << c.name << " " << dtype_name(dtype) << " " << i;
        }
      }
    }
}

// As in JAX there is no probability where there is no term.
TEST(VoidTerms, HaveTheValuesOfJax) {
  const Array x = Array::from({-kInf, -kInf}, {1, 2}).astype(DType::kF32);
  EXPECT_EQ(values(logsumexp(x, 1))[0], -kInf);
  EXPECT_EQ(values(logaddexp(x, x))[0], -kInf);
  for (const Array& y : {softmax(x), log_softmax(x)}) {
    EXPECT_TRUE(std::isnan(values(y)[0]));
    EXPECT_TRUE(std::isnan(values(y)[1]));
  }
  const Array none = zeros({1, 2}, DType::kBool);
  EXPECT_EQ(values(softmax(x, -1, none)), (std::vector<double>{0, 0}));
  EXPECT_EQ(values(log_softmax(x, -1, none)), (std::vector<double>{-kInf, -kInf}));
}

// jax-ml/jax#22398: a factor of 0 has a slope.
TEST(LogSumExp, HasAGradientByFactorsOfZero) {
  struct Row {
    std::vector<double> a, b, by_a, by_b;
  };
  const double e = std::exp(1.0);
  const std::vector<Row> rows = {
      {{0, 0}, {1, 0}, {1, 0}, {1, 1}},
      {{0, 1}, {1, 0}, {1, 0}, {1, e}},
      {{1, -kInf}, {2, 0}, {1, 0}, {0.5, 0}},
      {{-kInf, 0}, {0, 1}, {0, 1}, {0, 1}},
      // Nothing is left: no slopes.
      {{0, 1}, {0, 0}, {0, 0}, {0, 0}},
      {{-kInf, -kInf}, {1, 1}, {0, 0}, {0, 0}},
  };
  for (DType dtype : kFloats)
    for (size_t i = 0; i < rows.size(); ++i) {
      const Row& row = rows[i];
      const Array a = Array::from(row.a, {2}).astype(dtype),
                  b = Array::from(row.b, {2}).astype(dtype);
      const auto [by_a, by_b] = grad<0, 1>([](const Array& x, const Array& y) {
        return logsumexp(x, 0, {}, y).astype(DType::kF32);
      })(a, b);
      const std::vector<double> da = values(by_a), db = values(by_b);
      for (size_t k = 0; k < 2; ++k) {
        EXPECT_NEAR(da[k], row.by_a[k], 0.02) << i << " " << dtype_name(dtype);
        EXPECT_NEAR(db[k], row.by_b[k], 0.02) << i << " " << dtype_name(dtype);
      }
    }
  // A power beyond the largest number is that: the value is not touched by it.
  const Array a = Array::from({0.0, 1000.0}, {2}).astype(DType::kF32);
  const Array b = Array::from({1.0, 0.0}, {2}).astype(DType::kF32);
  EXPECT_EQ(values(logsumexp(a, 0, {}, b))[0], 0);
  const Array by_b =
      grad([&](const Array& y) { return logsumexp(a, 0, {}, y); })(b);
  EXPECT_GT(values(by_b)[1], 1e38);
}

}  // namespace
}  // namespace stow
