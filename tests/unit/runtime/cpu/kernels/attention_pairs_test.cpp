// Attention on pairs of bf16, on machines that multiply them, and on those that do so in tiles.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "stowage/runtime/cpu/kernels/gemm_thread.h"
#include "tests/unit/runtime/cpu/kernels/attention_oracle.h"

namespace stow::testing {
namespace {

using enum DType;

class AttentionPairs : public ::testing::TestWithParam<cpu::GemmForm> {
 protected:
  void SetUp() override {
    if (!cpu::set_bf16_form_for_test(GetParam())) GTEST_SKIP() << "this machine cannot";
  }
  void TearDown() override {
    hwy::SetSupportedTargetsForTest(0);
    cpu::set_bf16_form_for_test({});
  }
};
INSTANTIATE_TEST_SUITE_P(, AttentionPairs,
                         ::testing::Values(cpu::GemmForm::kPaired, cpu::GemmForm::kTiled),
                         [](const auto& info) {
                           return std::string(info.index == 0 ? "pairs" : "tiles");
                         });

// batch, q_heads, kv_heads, q_len, kv_len, head_dim, causal, shift
const AttentionShape kShapes[] = {
    {1, 1, 1, 1, 1, 1, false},      {1, 1, 1, 9, 1, 2, true},       {2, 3, 3, 17, 17, 32, true},
    {1, 2, 1, 63, 65, 65, true},    {1, 4, 2, 101, 231, 64, true},  {1, 2, 2, 99, 229, 31, false},
    {1, 2, 1, 50, 51, 7, true},     {1, 1, 1, 41, 60, 129, true},   {1, 6, 2, 97, 193, 13, true},
    {1, 1, 1, 385, 577, 12, true},  {1, 1, 1, 193, 191, 3, false},  {2, 9, 1, 1, 211, 33, true},
    {1, 2, 2, 11, 400, 16, true},   {1, 1, 1, 1, 97, 5, false},     {1, 3, 1, 33, 20, 24, true},
    {1, 2, 1, 230, 100, 16, true, 130}, {1, 1, 1, 300, 290, 24, true, -30},
    {1, 2, 1, 100, 231, 64, true, -131}, {1, 1, 1, 13, 0, 8, false},
    {2, 8, 2, 1, 301, 64, true},     {1, 1, 1, 1, 401, 128, false},  {1, 2, 1, 3, 194, 100, true},
    {2, 4, 2, 2, 211, 33, true},     {1, 7, 1, 1, 193, 31, false},   {1, 1, 1, 8, 17, 300, true},
    {1, 1, 1, 5, 0, 8, false},       {1, 2, 2, 7, 3, 40, true},
    {1, 2, 1, 1, 250, 72, true, -249},
};

std::string describe(const AttentionShape& s) {
  std::string out;
  for (int64_t e : {s.batch, s.q_heads, s.kv_heads, s.q_len, s.kv_len, s.head_dim})
    out += std::to_string(e) + " ";
  return out + (s.causal ? "causal" : "");
}

using Values = std::vector<std::vector<double>>;
Values results(const AttentionProblem& p) {
  return {p.out.values(), p.dq.values(), p.dk.values(), p.dv.values(), p.lse_values()};
}

// Each element within its own roundings: P, dS and out once each on the way, and the result.
// `slack` is for what is summed in f32.
void check(const AttentionProblem& p, double slack = 1e-5) {
  AttentionResult sizes;
  const AttentionResult want = attention_oracle(p, &sizes);
  const double u = unit_roundoff(kBF16);
  auto within = [&](const char* what, const std::vector<double>& got,
                    const std::vector<double>& right, const std::vector<double>& size) {
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_LE(std::abs(got[i] - right[i]), u * (size[i] + std::abs(right[i])) + slack)
          << what << "[" << i << "]: " << got[i] << " instead of " << right[i];
  };
  within("out", p.out.values(), want.out, sizes.out);
  within("dq", p.dq.values(), want.dq, sizes.dq);
  within("dk", p.dk.values(), want.dk, sizes.dk);
  within("dv", p.dv.values(), want.dv, sizes.dv);
  const std::vector<double> lse = p.lse_values();
  for (size_t i = 0; i < lse.size(); ++i) {
    const bool same = lse[i] == want.lse[i];  // infinities
    ASSERT_TRUE(same || std::abs(lse[i] - want.lse[i]) <= slack) << i;
  }
}

TEST_P(AttentionPairs, StayWithinTheirRoundings) {
  uint64_t layout = 0;
  for (const AttentionShape& shape : kShapes)
    for (int threads : {1, 2, 3}) {
      SCOPED_TRACE(describe(shape));
      AttentionProblem p(shape, kBF16, layout);
      layout = (layout + 13) % 40;
      p.run(threads);
      check(p);
      if (HasFatalFailure()) return;
    }
}

TEST_P(AttentionPairs, BitsDoNotDependOnThreadsStridesOrBatch) {
  for (const AttentionShape& shape : kShapes) {
    SCOPED_TRACE(describe(shape));
    AttentionProblem first(shape, kBF16, 0);
    first.run(1);
    for (int threads : {1, 2, 3})
      for (uint64_t layout : {0, 20}) {
        AttentionProblem p(shape, kBF16, layout);
        p.run(threads);
        ASSERT_EQ(results(p), results(first)) << threads << " " << layout;
      }
    // The same first element of a batch of two.
    AttentionShape twice = shape;
    twice.batch = 2 * shape.batch;
    AttentionProblem p(twice, kBF16, 0);
    p.run(2);
    const Values one = results(first);
    Values both = results(p);
    for (size_t i = 0; i < one.size(); ++i) {
      both[i].resize(one[i].size());
      ASSERT_EQ(both[i], one[i]) << i;
    }
  }
}

// Which kernel runs is a matter of dtype and scale; what it gives, of the machine too.
TEST_P(AttentionPairs, ServeBf16UnderAPositiveScale) {
  for (const float scale : {0.3f, 0.0f, -0.3f})
    for (DType t : {kBF16, kF16, kF32}) {
      hwy::SetSupportedTargetsForTest(0);
      AttentionProblem p({1, 2, 1, 60, 70, 24, true}, t, 0);
      p.spec.scale = scale;
      p.run(1);
      const Values here = results(p);
      hwy::SetSupportedTargetsForTest(HWY_AVX2);
      ASSERT_FALSE(cpu::can_multiply_pairs());
      p.run(1);
      const bool pairs = t == kBF16 && scale > 0;
      EXPECT_EQ(here != results(p), pairs) << scale << " " << dtype_name(t);
    }
}

TEST_P(AttentionPairs, QueriesThatSeeNothingGiveZeros) {
  AttentionProblem p({1, 2, 1, 41, 11, 15, true}, kBF16, 0);
  p.run(2);
  for (int64_t i = 0; i < 30; ++i)
    for (int64_t h = 0; h < 2; ++h) {
      EXPECT_EQ(p.lse_values()[size_t(h * 41 + i)], -std::numeric_limits<double>::infinity());
      for (int64_t d = 0; d < 15; ++d) {
        EXPECT_EQ(p.out.at(0, i, h, d), 0);
        EXPECT_EQ(p.dq.at(0, i, h, d), 0);
      }
    }
  EXPECT_NE(p.out.at(0, 30, 0, 0), 0);
}

TEST_P(AttentionPairs, LargeScoresAndNaN) {
  AttentionProblem p({1, 1, 1, 65, 65, 9, true}, kBF16, 0);
  for (int64_t d = 0; d < 9; ++d)
    write_element(kBF16, p.k.data.data(), p.k.offset(0, 5, 0, d), 3e4);
  p.run(1);
  check(p, 0.1);
  write_element(kBF16, p.q.data.data(), p.q.offset(0, 20, 0, 0), std::nan(""));
  p.run(1);
  for (int64_t i = 0; i < 65; ++i) {
    EXPECT_EQ(std::isnan(p.out.at(0, i, 0, 0)), i == 20) << i;
    EXPECT_EQ(std::isnan(p.dq.at(0, i, 0, 0)), i == 20) << i;
    EXPECT_EQ(std::isnan(p.dv.at(0, i, 0, 0)), i <= 20) << i;
  }
}

}  // namespace
}  // namespace stow::testing
