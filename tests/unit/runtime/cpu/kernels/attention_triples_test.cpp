// Attention of f32 split into three bf16 each, on machines that multiply tiles of these.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <functional>

#include "stowage/runtime/cpu/kernels/gemm_thread.h"
#include "tests/unit/runtime/cpu/kernels/attention_oracle.h"

namespace stow::testing {
namespace {

using enum DType;
using Values = std::vector<std::vector<double>>;

Values results(const AttentionProblem& p) {
  return {p.out.values(), p.dq.values(), p.dk.values(), p.dv.values()};
}

void scale(HeadTensor& x, const std::function<double(int64_t i, int64_t d)>& factor) {
  const auto& e = x.extents;
  for (int64_t b = 0; b < e[0]; ++b)
    for (int64_t i = 0; i < e[1]; ++i)
      for (int64_t h = 0; h < e[2]; ++h)
        for (int64_t d = 0; d < e[3]; ++d)
          write_element(x.t, x.data.data(), x.offset(b, i, h, d), x.at(b, i, h, d) * factor(i, d));
}

class AttentionTriples : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cpu::can_multiply_tiles()) GTEST_SKIP() << "this machine has no tiles";
  }
  void TearDown() override { cpu::set_bf16_form_for_test({}); }
  static void on_vector_units(AttentionProblem& p, int threads) {
    cpu::set_bf16_form_for_test(cpu::GemmForm::kPlain);
    p.run(threads);
    cpu::set_bf16_form_for_test({});
  }
};

// Errors beside the f64 oracle's, each relative to the largest of its tensor: their mean.
std::vector<double> mean_errors(const AttentionProblem& p, const AttentionResult& want) {
  const std::vector<double>* right[] = {&want.out, &want.dq, &want.dk, &want.dv};
  const Values got = results(p);
  std::vector<double> means;
  for (size_t t = 0; t < got.size(); ++t) {
    double largest = 0, sum = 0;
    for (size_t i = 0; i < got[t].size(); ++i) {
      largest = std::max(largest, std::abs((*right[t])[i]));
      sum += std::abs(got[t][i] - (*right[t])[i]);
    }
    means.push_back(sum / largest / double(got[t].size()));
  }
  return means;
}

TEST_F(AttentionTriples, AreNoLessAccurate) {
  for (const AttentionShape& shape : {AttentionShape{1, 2, 1, 300, 300, 64, true},
                                      AttentionShape{1, 2, 2, 256, 700, 128, false}}) {
    AttentionProblem p(shape, kF32, 0);
    const AttentionResult want = attention_oracle(p);
    on_vector_units(p, 1);
    const std::vector<double> plain = mean_errors(p, want);
    const Values before = results(p);
    p.run(1);
    const std::vector<double> split = mean_errors(p, want);
    EXPECT_NE(results(p), before);
    for (size_t t = 0; t < plain.size(); ++t) EXPECT_LE(split[t], plain[t]) << t;
  }
}

// It splits what the header says, and nothing else.
TEST_F(AttentionTriples, ServeLongAttentionOfF32) {
  struct Case {
    AttentionShape shape;
    DType t;
    float scale;
    bool splits;
  };
  for (const Case& c : {Case{{1, 1, 1, 256, 256, 32, true}, kF32, 0.3f, true},
                        Case{{1, 2, 1, 128, 256, 256, false}, kF32, 0.3f, true},
                        Case{{1, 1, 1, 255, 256, 32, true}, kF32, 0.3f, false},
                        Case{{1, 1, 1, 256, 255, 32, true}, kF32, 0.3f, false},
                        Case{{1, 1, 1, 256, 256, 31, true}, kF32, 0.3f, false},
                        Case{{1, 1, 1, 256, 256, 257, true}, kF32, 0.3f, false},
                        Case{{1, 1, 1, 256, 256, 32, true}, kF32, -0.3f, false},
                        Case{{1, 1, 1, 256, 256, 32, true}, kF16, 0.3f, false}}) {
    AttentionProblem p(c.shape, c.t, 0);
    p.spec.scale = c.scale;
    p.run(1);
    const Values here = results(p);
    on_vector_units(p, 1);
    EXPECT_EQ(here != results(p), c.splits)
        << c.shape.q_len << " " << c.shape.kv_len << " " << c.shape.head_dim << " " << c.scale;
  }
}

// Numbers of which parts or products would be lost, as subnormal numbers or as infinities, in
// whole tensors and in single rows of them: factors that cancel leave what is right.
TEST_F(AttentionTriples, TakeEveryMagnitude) {
  const AttentionShape shape{1, 2, 1, 290, 300, 40, true};
  const auto check = [&](const char* what, double q, double k, double v, double d_out, auto which) {
    SCOPED_TRACE(what);
    AttentionProblem p(shape, kF32, 0);
    const auto of = [&](double factor) {
      return [=](int64_t i, int64_t d) { return which(i, d) ? factor : 1.0; };
    };
    scale(p.q, of(q)), scale(p.k, of(k)), scale(p.v, of(v)), scale(p.d_out, of(d_out));
    p.run(2);
    const AttentionResult want = attention_oracle(p);
    const std::vector<double>* right[] = {&want.out, &want.dq, &want.dk, &want.dv};
    const Values got = results(p);
    for (size_t t = 0; t < got.size(); ++t) {
      double largest = 0;
      for (double x : *right[t]) largest = std::max(largest, std::abs(x));
      for (size_t i = 0; i < got[t].size(); ++i)
        ASSERT_LE(std::abs(got[t][i] - (*right[t])[i]), 1e-5 * largest) << t << " " << i;
    }
  };
  const auto all = [](int64_t, int64_t) { return true; };
  check("small queries, large keys", 0x1p-100, 0x1p100, 1, 1, all);
  check("large queries, small keys", 0x1p100, 0x1p-100, 1, 1, all);
  check("large values, small gradients", 1, 1, 0x1p70, 0x1p-70, all);
  check("small values, large gradients", 1, 1, 0x1p-70, 0x1p70, all);
  check("small gradients", 1, 1, 1, 0x1p-60, all);
  check("some dims", 0x1p-90, 0x1p90, 1, 1, [](int64_t, int64_t d) { return d % 3 == 0; });
  check("some values", 1, 1, 0x1p66, 1, [](int64_t i, int64_t d) { return i == 7 && d == 5; });
  check("some rows of gradients", 1, 1, 1, 0x1p-80, [](int64_t i, int64_t) { return i % 5 != 0; });
}

TEST_F(AttentionTriples, InfinitiesAndNaN) {
  const double infinity = std::numeric_limits<double>::infinity();
  AttentionProblem p({1, 1, 1, 300, 300, 32, true}, kF32, 0);
  // A value that only queries from 250 on see: they give infinity in its dim.
  write_element(kF32, p.v.data.data(), p.v.offset(0, 250, 0, 3), infinity);
  p.run(1);
  for (int64_t i = 0; i < 300; ++i)
    for (int64_t d = 0; d < 32; ++d) {
      const double out = p.out.at(0, i, 0, d);
      if (d != 3 || i < 192) {  // a block of keys
        EXPECT_TRUE(std::isfinite(out)) << i << " " << d;
      } else if (i >= 250) {
        EXPECT_EQ(out, infinity) << i;
      }
    }
  // A key whose scores are -inf counts nothing.
  AttentionProblem other({1, 1, 1, 300, 300, 32, true}, kF32, 0);
  const auto set = [](HeadTensor& x, int64_t i, double value) {
    for (int64_t d = 0; d < 32; ++d)
      write_element(kF32, x.data.data(), x.offset(0, i, 0, d), value);
  };
  for (int64_t i = 0; i < 300; ++i) set(other.q, i, 1 + 0.001 * double(i));
  set(other.k, 5, -infinity);
  other.run(1);
  const AttentionResult want = attention_oracle(other);
  for (int64_t i = 6; i < 300; ++i)
    EXPECT_NEAR(other.out.at(0, i, 0, 0), want.out[size_t(i * 32)], 1e-5) << i;
  write_element(kF32, p.v.data.data(), p.v.offset(0, 250, 0, 3), 1);
  write_element(kF32, p.q.data.data(), p.q.offset(0, 20, 0, 0), std::nan(""));
  p.run(1);
  for (int64_t i = 0; i < 300; ++i) {
    EXPECT_EQ(std::isnan(p.out.at(0, i, 0, 0)), i == 20) << i;
    EXPECT_EQ(std::isnan(p.dq.at(0, i, 0, 0)), i == 20) << i;
  }
}

}  // namespace
}  // namespace stow::testing
