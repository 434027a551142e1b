// Attention whose queries see an interval of keys each, by every kernel that there is for it.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "stowage/runtime/cpu/kernels/gemm_thread.h"
#include "tests/unit/runtime/cpu/kernels/attention_oracle.h"

namespace stow::testing {
namespace {

using enum DType;
using cpu::GemmForm;

// How products are made: as this machine does it, of pairs of bf16, or on vector units alone.
class AttentionIntervals : public ::testing::TestWithParam<GemmForm> {
 protected:
  void SetUp() override {
    if (!cpu::set_bf16_form_for_test(GetParam())) GTEST_SKIP() << "this machine cannot";
  }
  void TearDown() override {
    hwy::SetSupportedTargetsForTest(0);
    cpu::set_bf16_form_for_test({});
  }
};
INSTANTIATE_TEST_SUITE_P(, AttentionIntervals,
                         ::testing::Values(GemmForm::kPlain, GemmForm::kPaired, GemmForm::kTiled),
                         [](const auto& info) {
                           return std::string(std::array{"plain", "pairs", "tiles"}[info.index]);
                         });

// batch, q_heads, kv_heads, q_len, kv_len, head_dim, causal, shift
const AttentionShape kShapes[] = {
    {2, 3, 3, 17, 17, 32, true},        {1, 2, 1, 64, 64, 64, false},
    {1, 4, 2, 100, 230, 80, true},      {2, 2, 2, 100, 430, 24, false},
    {1, 1, 1, 385, 577, 12, true},      {1, 1, 1, 250, 30, 16, false},
    {1, 6, 2, 97, 193, 13, true},       {2, 8, 2, 1, 900, 64, false},
    {1, 1, 1, 1, 801, 128, false},      {1, 3, 1, 2, 1000, 33, false},
    {3, 1, 1, 7, 500, 80, true, 30},    {1, 9, 3, 16, 1300, 64, false},
    {1, 4, 1, 300, 700, 8, true, -200}, {1, 1, 1, 5, 0, 8, false},
    {1, 1, 1, 0, 5, 8, false},
    // Split into three bf16 where the machine has tiles of these.
    {1, 2, 1, 300, 400, 40, true},      {2, 1, 1, 257, 600, 64, false},
    {1, 2, 2, 400, 800, 128, true, -70},
};

enum class Pattern { kRandom, kWindow, kPacked, kPadded, kFull, kNone, kScattered };
constexpr Pattern kPatterns[] = {Pattern::kRandom, Pattern::kWindow, Pattern::kPacked,
                                 Pattern::kPadded, Pattern::kFull,   Pattern::kNone,
                                 Pattern::kScattered};

void set_intervals(AttentionProblem& p, Pattern pattern, uint64_t seed) {
  const AttentionShape& s = p.shape;
  std::mt19937_64 random(seed);
  const auto below = [&](int64_t n) {
    return int64_t(random() % uint64_t(std::max<int64_t>(n, 1)));
  };
  std::vector<int32_t> lo, hi;
  const int64_t example = 1 + below(90), window = 1 + below(70);
  for (int64_t b = 0; b < s.batch; ++b) {
    const int64_t left = below(s.kv_len), right = below(s.kv_len);
    for (int64_t i = 0; i < s.q_len; ++i) {
      const int64_t diagonal = i + s.kv_len - s.q_len;  // the key beside query i
      std::pair<int64_t, int64_t> range;
      switch (pattern) {
        case Pattern::kRandom:
          range = {below(s.kv_len + 20) - 10, below(s.kv_len + 20) - 10};
          break;
        case Pattern::kWindow: range = {diagonal - window + 1, diagonal + 1}; break;
        case Pattern::kPacked:
          range = {i / example * example, std::min(i / example * example + example, i + 1)};
          break;
        case Pattern::kPadded: range = {std::min(left, right), std::max(left, right)}; break;
        case Pattern::kFull: range = {-5, s.kv_len + 5}; break;
        case Pattern::kNone: range = {i, i - below(3)}; break;
        case Pattern::kScattered: {  // few keys anywhere, and many queries without one
          const int64_t at = below(s.kv_len);
          range = {at, at + below(3) * below(9)};
          break;
        }
      }
      lo.push_back(int32_t(range.first)), hi.push_back(int32_t(range.second));
    }
  }
  p.set_intervals(std::move(lo), std::move(hi));
}

std::string describe(const AttentionShape& s, Pattern pattern, DType t) {
  std::string out;
  for (int64_t e : {s.batch, s.q_heads, s.kv_heads, s.q_len, s.kv_len, s.head_dim})
    out += std::to_string(e) + " ";
  return out + (s.causal ? "causal " : "") + std::to_string(int(pattern)) + " " +
         std::string(dtype_name(t));
}

// Pairs are of bf16, tiles of that and of f32.
bool is_another_kernel(GemmForm form, DType t) {
  return form == GemmForm::kPlain || t == kBF16 || (form == GemmForm::kTiled && t == kF32);
}

using Values = std::vector<std::vector<double>>;
Values results(const AttentionProblem& p) {
  return {p.out.values(), p.dq.values(), p.dk.values(), p.dv.values(), p.lse_values()};
}

// As the tests of attention without intervals have it: where products are of pairs of bf16, within
// the roundings of P, dS and out on the way, else in relation to the largest element.
void check(const AttentionProblem& p, bool pairs) {
  AttentionResult sizes;
  const AttentionResult want = attention_oracle(p, &sizes);
  const double u = unit_roundoff(p.spec.dtype);
  const std::vector<double>* right[] = {&want.out, &want.dq, &want.dk, &want.dv, &want.lse};
  const std::vector<double>* size[] = {&sizes.out, &sizes.dq, &sizes.dk, &sizes.dv};
  const double tolerances[] = {1e-6 + u, 4e-6 + 3 * u, 4e-6 + 3 * u, 4e-6 + u, 1e-6};
  const Values got = results(p);
  for (size_t t = 0; t < got.size(); ++t) {
    double largest = 2;
    for (double x : *right[t])
      if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
    for (size_t i = 0; i < got[t].size(); ++i) {
      const double x = got[t][i], y = (*right[t])[i];
      const double error = pairs && t < 4 ? u * ((*size[t])[i] + std::abs(y)) + 1e-5
                           : pairs        ? 1e-5
                                          : tolerances[t] * largest;
      ASSERT_TRUE(x == y || std::abs(x - y) <= error)
          << t << "[" << i << "]: " << x << " instead of " << y;
    }
  }
}

TEST_P(AttentionIntervals, AreNearTheOracle) {
  uint64_t layout = 0, seed = 0;
  for (const AttentionShape& shape : kShapes)
    for (const Pattern pattern : kPatterns) {
      ++seed;
      for (const DType t : {kF32, kBF16, kF16}) {
        SCOPED_TRACE(describe(shape, pattern, t));
        // Of large shapes every pattern in one dtype, in turn.
        if (++seed % 3 != 0 && shape.q_len * shape.kv_len > 50000) continue;
        if (!is_another_kernel(GetParam(), t)) continue;
        AttentionProblem p(shape, t, layout);
        set_intervals(p, pattern, seed);
        layout = (layout + 13) % 40;
        p.run(1 + int(seed % 3));
        check(p, t == kBF16 && GetParam() != GemmForm::kPlain);
        if (HasFatalFailure()) return;
      }
    }
}

// Intervals from 0 to what a causal mask ends with are that mask, to the bit, but where few queries
// have many keys: chunks of those are summed by themselves.
TEST_P(AttentionIntervals, FromTheFirstKeyOnAreACausalMask) {
  for (const AttentionShape& shape : kShapes) {
    const bool splits = shape.q_len * (shape.q_heads / shape.kv_heads) <= 64 && shape.kv_len > 384;
    if (!shape.causal || splits) continue;
    for (const DType t : {kF32, kBF16, kF16}) {
      SCOPED_TRACE(describe(shape, Pattern::kFull, t));
      AttentionProblem causal(shape, t, 0);
      causal.run(2);
      AttentionShape open = shape;
      open.causal = false;
      AttentionProblem p(open, t, 0);
      std::vector<int32_t> lo, hi;
      for (int64_t b = 0; b < shape.batch; ++b)
        for (int64_t i = 0; i < shape.q_len; ++i)
          lo.push_back(0), hi.push_back(int32_t(i + shape.offset() + 1));
      p.set_intervals(lo, hi);
      p.run(2);
      ASSERT_EQ(results(p), results(causal));
    }
  }
}

TEST_P(AttentionIntervals, BitsDoNotDependOnThreadsStridesOrBatch) {
  uint64_t seed = 100;
  for (const AttentionShape& shape : kShapes)
    for (const Pattern pattern : {Pattern::kRandom, Pattern::kWindow, Pattern::kScattered})
      for (const DType t : {kF32, kBF16}) {
        SCOPED_TRACE(describe(shape, pattern, t));
        if (!is_another_kernel(GetParam(), t)) continue;
        AttentionProblem first(shape, t, 0);
        set_intervals(first, pattern, ++seed);
        first.run(1);
        const Values want = results(first);
        for (const auto& [threads, layout] : {std::pair{2, 20}, {3, 0}}) {
          AttentionProblem p(shape, t, uint64_t(layout));
          p.set_intervals(first.lo, first.hi);
          p.run(threads);
          ASSERT_EQ(results(p), want) << threads << " " << layout;
        }
        // The same first elements of a batch of twice as many.
        AttentionShape twice = shape;
        twice.batch *= 2;
        AttentionProblem p(twice, t, 0);
        set_intervals(p, Pattern::kRandom, seed);
        std::copy(first.lo.begin(), first.lo.end(), p.lo.begin());
        std::copy(first.hi.begin(), first.hi.end(), p.hi.begin());
        p.run(2);
        Values both = results(p);
        for (size_t i = 0; i < want.size(); ++i) {
          both[i].resize(want[i].size());
          ASSERT_EQ(both[i], want[i]) << i;
        }
      }
}

TEST_P(AttentionIntervals, AgreeOnEveryTarget) {
  if (GetParam() != GemmForm::kPlain) GTEST_SKIP() << "one set of vector units";
  for (const AttentionShape& shape :
       {AttentionShape{1, 2, 1, 130, 450, 40, true}, AttentionShape{2, 4, 2, 1, 650, 40, false},
        AttentionShape{1, 1, 1, 200, 900, 24, false}})
    for (const Pattern pattern : {Pattern::kRandom, Pattern::kWindow, Pattern::kScattered}) {
      Values fused;
      for (int64_t target : {int64_t{HWY_AVX3}, int64_t{HWY_AVX2}, int64_t{HWY_EMU128}}) {
        hwy::SetSupportedTargetsForTest(0);
        const bool fallback = target == int64_t{HWY_EMU128};
        if (!fallback && !(hwy::SupportedTargets() & target)) continue;
        hwy::SetSupportedTargetsForTest(target);
        for (const DType t : {kBF16, kF16, kF32}) {
          SCOPED_TRACE(describe(shape, pattern, t) + " " + hwy::TargetName(target));
          AttentionProblem p(shape, t, 3);
          set_intervals(p, pattern, 7);
          p.run(1);
          check(p, false);
          if (HasFatalFailure()) return;
          if (t != kF32 || fallback) continue;
          if (fused.empty()) fused = results(p);
          ASSERT_EQ(results(p), fused);
        }
      }
    }
}

TEST_P(AttentionIntervals, OfNothingGiveZeros) {
  for (const int64_t queries : {1, 3, 300})
    for (const DType t : {kF32, kBF16, kF16}) {
      AttentionProblem p({1, 2, 1, queries, 700, 32, false}, t, 0);
      std::vector<int32_t> lo(size_t(queries), 5), hi(size_t(queries), 650);
      for (int64_t i = 0; i < queries; i += 2) lo[size_t(i)] = 400, hi[size_t(i)] = 300;
      p.set_intervals(lo, hi);
      p.run(2);
      for (int64_t i = 0; i < queries; ++i)
        for (int64_t h = 0; h < 2; ++h) {
          const double lse = p.lse_values()[size_t(h * queries + i)];
          EXPECT_EQ(lse == -std::numeric_limits<double>::infinity(), i % 2 == 0) << i;
          for (int64_t d = 0; d < 32; ++d) {
            ASSERT_EQ(p.out.at(0, i, h, d) == 0, i % 2 == 0) << i << " " << dtype_name(t);
            ASSERT_EQ(p.dq.at(0, i, h, d) == 0, i % 2 == 0) << i << " " << dtype_name(t);
          }
        }
      for (int64_t j : {0, 4, 650, 699}) {
        EXPECT_EQ(p.dk.at(0, j, 0, 0), 0);
        EXPECT_EQ(p.dv.at(0, j, 0, 0), 0);
      }
    }
}

// What is not finite leaves no trace at all where it is not seen: neither of keys and values, nor
// of queries and their gradients.
TEST_P(AttentionIntervals, HideWhatIsNotFinite) {
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::nan("");
  uint64_t seed = 0;
  for (const AttentionShape& shape :
       {AttentionShape{2, 2, 1, 90, 410, 24, false}, AttentionShape{1, 2, 2, 300, 500, 64, true},
        AttentionShape{2, 4, 2, 4, 600, 32, false}, AttentionShape{1, 1, 1, 3, 450, 20, false},
        AttentionShape{1, 2, 1, 1, 450, 24, false}})
    for (const DType t : {kF32, kBF16, kF16})
      for (const double bad : {nan, infinity, -infinity}) {
        SCOPED_TRACE(describe(shape, Pattern::kWindow, t) + " " + std::to_string(bad));
        AttentionProblem clean(shape, t, 0);
        set_intervals(clean, Pattern::kWindow, ++seed);
        clean.run(2);
        const Values before = results(clean);
        AttentionProblem p(shape, t, 0);
        p.set_intervals(clean.lo, clean.hi);
        const int64_t dims = shape.head_dim, group = shape.q_heads / shape.kv_heads;
        const int64_t bad_key = shape.kv_len - 6, bad_query = shape.q_len / 2;
        const auto set = [&](HeadTensor& x, int64_t i, int64_t d) {
          write_element(t, x.data.data(), x.offset(0, i, 0, d), bad);
        };
        set(p.k, bad_key, 3), set(p.v, bad_key, 5);
        if (shape.q_len > 8) set(p.q, bad_query, 1), set(p.d_out, bad_query, 2);
        p.run(2);
        const Values after = results(p);
        // A query of the first key head is touched if it is bad or sees the bad key; a key, if such
        // a query sees it.
        const auto sees = [&](int64_t i, int64_t j) {
          const auto [first, last] = p.visible(0, i);
          return first <= j && j < last;
        };
        const auto bad_row = [&](int64_t b, int64_t i, int64_t h) {
          if (b != 0 || h >= group) return false;
          return sees(i, bad_key) || (h == 0 && shape.q_len > 8 && i == bad_query);
        };
        size_t at = 0, touched = 0, n_bad = 0;
        for (int64_t b = 0; b < shape.batch; ++b)
          for (int64_t i = 0; i < shape.q_len; ++i)
            for (int64_t h = 0; h < shape.q_heads; ++h)
              for (int64_t d = 0; d < dims; ++d, ++at) {
                if (bad_row(b, i, h)) {
                  ++n_bad, touched += !std::isfinite(after[0][at]);
                  continue;
                }
                ASSERT_EQ(after[0][at], before[0][at]) << "out " << i << " " << h << " " << d;
                ASSERT_EQ(after[1][at], before[1][at]) << "dq " << i << " " << h << " " << d;
              }
        EXPECT_TRUE(touched > 0 || n_bad == 0);
        at = 0;
        for (int64_t b = 0; b < shape.batch; ++b)
          for (int64_t j = 0; j < shape.kv_len; ++j)
            for (int64_t g = 0; g < shape.kv_heads; ++g) {
              bool reached = false;
              for (int64_t i = 0; i < shape.q_len; ++i)
                for (int64_t h = g * group; h < (g + 1) * group; ++h)
                  reached |= bad_row(b, i, h) && sees(i, j);
              for (int64_t d = 0; d < dims; ++d, ++at) {
                if (reached) continue;
                ASSERT_EQ(after[2][at], before[2][at]) << "dk " << j << " " << g << " " << d;
                ASSERT_EQ(after[3][at], before[3][at]) << "dv " << j << " " << g << " " << d;
              }
            }
      }
}

// What is not finite and seen gives what a product with it gives.
TEST_P(AttentionIntervals, ShowWhatIsNotFinite) {
  for (const int64_t queries : {4, 300})
    for (const DType t : {kF32, kBF16}) {
      AttentionProblem p({1, 1, 1, queries, 500, 32, false}, t, 0);
      std::vector<int32_t> lo, hi;
      for (int64_t i = 0; i < queries; ++i)
        lo.push_back(int32_t(i)), hi.push_back(int32_t(i % 2 == 0 ? 490 : 495));
      p.set_intervals(lo, hi);
      write_element(t, p.v.data.data(), p.v.offset(0, 492, 0, 7),
                    -std::numeric_limits<double>::infinity());
      p.run(2);
      for (int64_t i = 0; i < queries; ++i)
        for (int64_t d = 0; d < 32; ++d) {
          if (i % 2 == 1 && d == 7) {
            ASSERT_EQ(p.out.at(0, i, 0, d), -std::numeric_limits<double>::infinity()) << i;
          } else {
            ASSERT_TRUE(std::isfinite(p.out.at(0, i, 0, d))) << i << " " << d;
          }
        }
    }
}

TEST(AttentionIntervalsMemory, IsLinear) {
  AttentionProblem p({1, 1, 1, 64, 64, 64, true}, kF32, 0);
  p.spec.intervals = true;
  p.spec.q_len = p.spec.kv_len = 1 << 20;
  EXPECT_LE(cpu::attention_forward_workspace_bytes(p.spec, 1), 1 << 20);
  EXPECT_LE(cpu::attention_backward_workspace_bytes(p.spec, 1),
            (2 << 20) + (1 << 20) * (64 + 1) * 4ll);
  EXPECT_LE(cpu::attention_backward_workspace_bytes(p.spec, 2), (4 << 20) + (1 << 20) * 5ll);
  for (const int64_t queries : {1, 16}) {
    p.spec.q_len = queries;
    EXPECT_LE(cpu::attention_forward_workspace_bytes(p.spec, 2), (1 << 20) + (1 << 20) * 16ll);
  }
}

}  // namespace
}  // namespace stow::testing
