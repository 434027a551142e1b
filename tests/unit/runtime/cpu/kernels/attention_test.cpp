#include "stowage/runtime/cpu/kernels/attention.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "tests/unit/runtime/cpu/kernels/attention_oracle.h"

namespace stow::testing {
namespace {

using enum DType;

// batch, q_heads, kv_heads, q_len, kv_len, head_dim, causal, shift
const AttentionShape kShapes[] = {
    {1, 1, 1, 1, 1, 8, false},
    {2, 3, 3, 17, 17, 32, true},
    {1, 2, 1, 64, 64, 64, true},
    {1, 1, 1, 200, 200, 48, true},
    {1, 4, 2, 100, 230, 64, true},
    {1, 2, 2, 100, 230, 40, false},
    {2, 8, 2, 1, 300, 64, true},
    {1, 1, 1, 1, 401, 128, false},
    {1, 3, 1, 33, 20, 24, true},
    {1, 1, 1, 250, 30, 16, false},
    {1, 2, 1, 50, 50, 7, true},
    {1, 1, 1, 40, 60, 300, true},
    {1, 6, 2, 97, 193, 13, true},
    {1, 1, 1, 385, 577, 12, true},
    {1, 1, 1, 5, 0, 8, false},
    {1, 1, 1, 0, 5, 8, true},
    {3, 1, 1, 31, 96, 96, false},
    {1, 2, 2, 300, 150, 20, true},
    {2, 8, 1, 1, 211, 9, false},
    {1, 2, 2, 3, 400, 16, true},
    {1, 2, 1, 2, 250, 72, true},
    {1, 3, 1, 2, 1, 24, true},
    {2, 2, 2, 1, 193, 64, true},
    {1, 5, 1, 1, 300, 33, true},
    {1, 2, 1, 100, 230, 64, true, -130},
    {1, 1, 1, 230, 100, 16, true, 130},
    {1, 4, 2, 97, 193, 13, true, 40},
    {1, 2, 1, 1, 250, 72, true, -249},
    {1, 1, 1, 300, 290, 24, true, -30},
    // Several runs of keys for each of a group's heads; of the second, blocks of queries that see
    // none.
    {1, 4, 2, 200, 600, 16, true},
    {2, 4, 1, 210, 600, 8, false},
    {1, 4, 2, 500, 600, 16, true, -450},
    {1, 4, 1, 620, 610, 8, true, -10},
    // Split into three bf16 where the machine has tiles of these.
    {1, 2, 1, 130, 261, 40, true},
    {2, 2, 2, 257, 300, 64, true},
    {1, 1, 1, 290, 256, 33, false},
    {1, 6, 2, 97, 385, 100, true, -40},
    {1, 1, 1, 256, 500, 256, true},
    {1, 2, 1, 300, 270, 48, true, -60},
};

std::string describe(const AttentionShape& s) {
  std::string out;
  for (int64_t e : {s.batch, s.q_heads, s.kv_heads, s.q_len, s.kv_len, s.head_dim})
    out += std::to_string(e) + " ";
  return out + (s.causal ? "causal" : "");
}

// Each element within `tolerance` of the oracle, relative to the largest of the tensor, or to the
// largest input where gradients cancel to less.
void expect_near(const char* what, const std::vector<double>& got, const std::vector<double>& want,
                 double tolerance, double largest) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (double x : want)
    if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] == want[i]) continue;  // infinities
    ASSERT_LE(std::abs(got[i] - want[i]), tolerance * largest)
        << what << "[" << i << "]: " << got[i] << " instead of " << want[i];
  }
}

void check(AttentionProblem& p, double largest_input = 2) {
  const AttentionResult want = attention_oracle(p);
  const double u = unit_roundoff(p.spec.dtype);
  // Sums in f32; out, and so delta, is rounded to the storage dtype.
  expect_near("lse", p.lse_values(), want.lse, 1e-6, largest_input);
  expect_near("out", p.out.values(), want.out, 1e-6 + u, largest_input);
  expect_near("dq", p.dq.values(), want.dq, 4e-6 + 3 * u, largest_input);
  expect_near("dk", p.dk.values(), want.dk, 4e-6 + 3 * u, largest_input);
  expect_near("dv", p.dv.values(), want.dv, 4e-6 + u, largest_input);
}

TEST(Attention, IsNearTheOracle) {
  uint64_t layout = 0;
  for (const AttentionShape& shape : kShapes)
    for (DType t : {kF32, kBF16, kF16})
      for (int threads : {1, 3}) {
        SCOPED_TRACE(describe(shape) + " " + std::string(dtype_name(t)));
        AttentionProblem p(shape, t, layout);
        layout = (layout + 13) % 40;
        p.run(threads);
        check(p);
        if (HasFatalFailure()) return;
      }
}

TEST(Attention, BitsDoNotDependOnThreadsOrStrides) {
  for (const AttentionShape& shape :
       {AttentionShape{1, 4, 2, 100, 230, 64, true}, AttentionShape{1, 1, 1, 385, 577, 12, true},
        AttentionShape{2, 4, 2, 201, 390, 50, true}, AttentionShape{1, 1, 1, 300, 410, 64, false},
        AttentionShape{3, 2, 1, 90, 200, 33, false}, AttentionShape{2, 8, 2, 2, 210, 24, true}})
    for (DType t : {kF32, kBF16}) {
      AttentionProblem first(shape, t, 0);
      first.run(1);
      for (int threads : {1, 2, 3, 5})
        for (uint64_t layout : {0, 20, 40}) {
          SCOPED_TRACE(describe(shape));
          AttentionProblem p(shape, t, layout);
          p.run(threads);
          ASSERT_EQ(p.lse_values(), first.lse_values());
          ASSERT_EQ(p.out.values(), first.out.values());
          ASSERT_EQ(p.dq.values(), first.dq.values());
          ASSERT_EQ(p.dk.values(), first.dk.values());
          ASSERT_EQ(p.dv.values(), first.dv.values());
        }
    }
}

TEST(Attention, EveryTargetAgrees) {
  for (const AttentionShape& shape :
       {AttentionShape{1, 2, 1, 130, 250, 40, true}, AttentionShape{2, 4, 2, 1, 250, 40, true}}) {
    std::vector<std::vector<double>> fused;
    for (int64_t target : {int64_t{HWY_AVX3}, int64_t{HWY_AVX2}, int64_t{HWY_EMU128}}) {
      hwy::SetSupportedTargetsForTest(0);
      const bool fallback = target == int64_t{HWY_EMU128};
      if (!fallback && !(hwy::SupportedTargets() & target)) continue;
      hwy::SetSupportedTargetsForTest(target);
      SCOPED_TRACE(hwy::TargetName(target));
      for (DType t : {kBF16, kF16, kF32}) {
        AttentionProblem p(shape, t, 3);
        p.run(1);
        check(p);
        if (t != kF32 || fallback) continue;
        std::vector<std::vector<double>> got = {p.lse_values(), p.out.values(), p.dq.values(),
                                                p.dk.values(), p.dv.values()};
        if (fused.empty()) fused = got;
        EXPECT_EQ(got, fused);
      }
    }
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST(Attention, QueriesThatSeeNothingGiveZeros) {
  AttentionProblem p({1, 2, 1, 40, 10, 16, true}, kF32, 0);
  p.run(2);
  for (int64_t i = 0; i < 30; ++i)
    for (int64_t h = 0; h < 2; ++h) {
      EXPECT_EQ(p.lse_values()[size_t(h * 40 + i)], -std::numeric_limits<double>::infinity());
      for (int64_t d = 0; d < 16; ++d) {
        EXPECT_EQ(p.out.at(0, i, h, d), 0);
        EXPECT_EQ(p.dq.at(0, i, h, d), 0);
      }
    }
  EXPECT_NE(p.out.at(0, 30, 0, 0), 0);
}

TEST(Attention, LargeScoresAndNaN) {
  AttentionProblem p({1, 1, 1, 64, 64, 8, true}, kF32, 0);
  for (int64_t d = 0; d < 8; ++d) write_element(kF32, p.k.data.data(), p.k.offset(0, 5, 0, d), 3e4);
  p.run(1);
  check(p, 3e4);
  write_element(kF32, p.q.data.data(), p.q.offset(0, 20, 0, 0), std::nan(""));
  p.run(1);
  for (int64_t i = 0; i < 64; ++i) EXPECT_EQ(std::isnan(p.out.at(0, i, 0, 0)), i == 20) << i;
}

// A query without a key to see has zeros; one whose scores are all -inf has no softmax.
TEST(Attention, OfScoresThatAreAllMinusInfinityIsNaN) {
  for (const DType t : {kF32, kBF16})
    for (const int64_t queries : {1, 64}) {
      AttentionProblem p({1, 1, 1, queries, 64, 8, true, queries == 64 ? -1 : 0}, t, 0);
      const int64_t last = queries - 1;
      for (int64_t d = 0; d < 8; ++d) {
        write_element(t, p.q.data.data(), p.q.offset(0, last, 0, d), -3e38);
        for (int64_t key = 0; key < 64; ++key)
          write_element(t, p.k.data.data(), p.k.offset(0, key, 0, d), 3e38);
      }
      p.run(1);
      EXPECT_TRUE(std::isnan(p.out.at(0, last, 0, 0))) << queries;
      if (queries == 64) { EXPECT_EQ(p.out.at(0, 0, 0, 0), 0); }  // sees none
    }
}

// The workspace is what is left of a score matrix: linear in the sequence at most.
TEST(Attention, WorkspaceIsLinear) {
  AttentionProblem p({1, 1, 1, 64, 64, 64, true}, kF32, 0);
  p.spec.q_len = p.spec.kv_len = 1 << 20;
  EXPECT_LE(cpu::attention_forward_workspace_bytes(p.spec, 1), 1 << 20);
  EXPECT_LE(cpu::attention_backward_workspace_bytes(p.spec, 1),
            (2 << 20) + (1 << 20) * (64 + 1) * 4ll);
  EXPECT_LE(cpu::attention_backward_workspace_bytes(p.spec, 2), (4 << 20) + (1 << 20) * 4ll);
}

}  // namespace
}  // namespace stow::testing
