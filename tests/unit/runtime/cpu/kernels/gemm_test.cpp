#include "stowage/runtime/cpu/kernels/gemm.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <array>
#include <limits>

#include "tests/unit/runtime/cpu/kernels/gemm_oracle.h"

namespace stow::testing {
namespace {

using enum DType;

bool machine_fuses() { return (hwy::SupportedTargets() & (HWY_AVX2 | HWY_AVX3 | HWY_NEON)) != 0; }

const GemmShape kShapes[] = {
    {{}, {1}, {1}, {1}},
    {{}, {5}, {7}, {3}},
    {{}, {12}, {32}, {256}},
    {{}, {13}, {33}, {257}},
    {{}, {1}, {100}, {600}},
    {{}, {100}, {1}, {600}},
    {{}, {3}, {300}, {31}},
    {{}, {300}, {3}, {31}},
    {{}, {203}, {70}, {64}},
    {{}, {64}, {1030}, {20}},
    {{}, {128}, {130}, {128}},
    {{}, {2, 100}, {5, 30}, {13, 23}},
    {{2}, {140}, {1040}, {270}},
    {{}, {520}, {40}, {270}},
    {{}, {30}, {40}, {2400}},
    {{}, {3}, {70}, {2400}},
    {{}, {40}, {40}, {1}},
    {{7}, {17}, {19}, {23}},
    {{5}, {50}, {70}, {64}},
    {{3}, {40}, {130}, {200}},
    {{9}, {16}, {16}, {16}},
    {{6}, {8}, {16}, {8}},
    {{2, 3}, {12}, {20}, {10}},
    {{2, 3}, {4, 5}, {3, 11}, {2, 13}},
    {{3}, {2, 3, 4}, {4, 5, 6}, {3, 5, 7}},
    {{2}, {}, {50}, {40}},
    {{}, {}, {}, {700}},
    {{1}, {1, 36}, {64, 1}, {16, 4, 9}},
    {{35}, {3}, {3}, {3}},
    {{4, 9}, {2}, {7}, {5}},
    {{33}, {}, {}, {64}},
    {{3, 20}, {2, 2}, {3}, {2, 3}},
    {{20}, {8}, {8}, {8}},
    {{}, {}, {}, {9000}},
    {{3}, {}, {}, {4100}},
};

constexpr cpu::GemmForm kForms[] = {cpu::GemmForm::kPlain, cpu::GemmForm::kPaired,
                                    cpu::GemmForm::kTiled};

std::vector<GemmShape> with_those_without_batch(std::vector<GemmShape> shapes) {
  for (const GemmShape& shape : kShapes)
    if (shape.batch.empty()) shapes.push_back(shape);
  return shapes;
}

std::string describe(const GemmShape& s) {
  std::string out;
  for (const auto* dims : {&s.batch, &s.m, &s.n, &s.k}) {
    for (int64_t e : *dims) out += std::to_string(e) + " ";
    out += "| ";
  }
  return out;
}

TEST(Gemm, KeepsItsContractOnBitsInEveryLayoutAndDtype) {
  const DType mixes[][3] = {{kF32, kF32, kF32}, {kBF16, kBF16, kBF16}, {kF16, kF16, kF16},
                            {kF32, kBF16, kF32}, {kF16, kF32, kBF16},  {kBF16, kF16, kF32},
                            {kF64, kF64, kF64}};
  uint64_t seed = 0;
  for (const cpu::GemmForm form : kForms) {
    if (!cpu::set_bf16_form_for_test(form)) continue;
    for (const GemmShape& shape : kShapes)
      for (const auto& t : mixes)
        for (bool accumulate : {false, true}) {
          SCOPED_TRACE(describe(shape) + std::string(dtype_name(t[2])) + (accumulate ? "+" : ""));
          GemmProblem p(shape, t[0], t[1], t[2], seed++ % 5, accumulate);
          const auto want = gemm_contract(p, machine_fuses());
          p.run(1);
          EXPECT_EQ(p.result(), want);
        }
  }
  cpu::set_bf16_form_for_test({});
}

// An epilogue that turns the sign of each element: twice, and it would be as it was.
TEST(Gemm, AnEpilogueHasEachElementOnceWhenItIsFinal) {
  const DType mixes[][3] = {{kF32, kF32, kF32}, {kBF16, kBF16, kBF16}};
  const GemmShape more[] = {{{}, {200, 3}, {70}, {300}}, {{}, {210}, {9, 130}, {270}},
                            {{}, {10}, {1300}, {300}},   {{}, {600}, {10}, {600}},
                            {{}, {40}, {1100}, {0}},     {{}, {200}, {300}, {1100}}};
  const std::vector<GemmShape> shapes =
      with_those_without_batch({std::begin(more), std::end(more)});
  uint64_t seed = 0;
  for (const cpu::GemmForm form : kForms) {
    if (!cpu::set_bf16_form_for_test(form)) continue;
    for (const GemmShape& shape : shapes)
      for (const auto& t : mixes)
        for (const bool accumulate : {false, true}) {
          // One problem for both: its oracle is what takes the time.
          const uint64_t pattern = seed++ % 5;
          const auto make = [&] {
            return GemmProblem(shape, t[0], t[1], t[2], pattern, accumulate);
          };
          std::vector<double> want = gemm_contract(make(), machine_fuses());
          for (double& x : want) x = -x;
          for (const bool whole_rows : {false, true}) {
            SCOPED_TRACE(describe(shape) + std::string(dtype_name(t[2])) +
                         (whole_rows ? " rows" : "") + (accumulate ? " more" : ""));
            GemmProblem p = make();
            p.spec.epilogue = {whole_rows, 200};
            const auto rows = p.offsets(&cpu::GemmDim::c_stride, {&p.spec.m});
            const auto cols = p.offsets(&cpu::GemmDim::c_stride, {&p.spec.n});
            p.run(1 + int(seed++ % 3), {.epilogue = [&](int64_t row, int64_t row_end, int64_t col,
                                                        int64_t col_end, void* scratch) {
              std::memset(scratch, 0xff, 200);
              if (whole_rows && (col != 0 || col_end != int64_t(cols.size()))) ADD_FAILURE() << col;
              for (int64_t i = row; i < row_end; ++i)
                for (int64_t j = col; j < col_end; ++j) {
                  const int64_t at = rows[size_t(i)] + cols[size_t(j)];
                  write_element(p.spec.c, p.c.data(), at, -read_element(p.spec.c, p.c.data(), at));
                }
            }});
            ASSERT_EQ(p.result(), want);
          }
        }
  }
  cpu::set_bf16_form_for_test({});
}

// Operands that are copied out of memory a piece at a time, as rows along k or not.
TEST(Gemm, APrologueMakesAnOperandPieceByPiece) {
  const std::vector<GemmShape> shapes =
      with_those_without_batch({{{}, {200, 3}, {70}, {300}}, {{}, {10}, {1300}, {300}},
                                {{}, {700}, {40}, {20, 30}}, {{}, {200}, {300}, {1100}}});
  uint64_t seed = 0;
  for (const cpu::GemmForm form : kForms) {
    if (!cpu::set_bf16_form_for_test(form)) continue;
    for (const GemmShape& shape : shapes)
      for (const DType t : {kF32, kBF16})
        for (int variant = 0; variant < 5; ++variant) {
          SCOPED_TRACE(describe(shape) + std::string(dtype_name(t)) + std::to_string(variant));
          ++seed;
          GemmProblem p(shape, t, t, kF32, seed % 5, seed % 2 == 1);
          const std::vector<double> want = gemm_contract(p, machine_fuses());
          const bool a_by_k = variant % 2 == 1, b_by_k = variant / 2 % 2 == 1;
          if (variant != 4) p.spec.a_prologue = {a_by_k, 100};
          if (variant != 0) p.spec.b_prologue = {b_by_k, 64};
          const auto fill_with = [&](const Buffer& from, std::vector<int64_t> outer,
                                     std::vector<int64_t> ks, bool of_b, bool by_k,
                                     size_t scratch_bytes) {
            return [&, outer, ks, of_b, by_k, scratch_bytes](void* piece, int64_t row,
                                                             int64_t row_end, int64_t col,
                                                             int64_t col_end, void* scratch) {
              std::memset(scratch, 0xff, scratch_bytes);
              const int64_t stride = cpu::gemm_piece_stride(of_b, by_k);
              for (int64_t i = row; i < row_end; ++i)
                for (int64_t j = col; j < col_end; ++j) {
                  const int64_t at =
                      by_k ? outer[size_t(j)] + ks[size_t(i)] : outer[size_t(i)] + ks[size_t(j)];
                  write_element(t, piece, (i - row) * stride + j - col,
                                read_element(t, from.data(), at));
                }
            };
          };
          using Dim = cpu::GemmDim;
          p.run(1 + int(seed % 3),
                {.prologue_a = fill_with(p.a, p.offsets(&Dim::a_stride, {&p.spec.m}),
                                     p.offsets(&Dim::a_stride, {&p.spec.k}), false, a_by_k, 100),
                 .prologue_b = fill_with(p.b, p.offsets(&Dim::b_stride, {&p.spec.n}),
                                     p.offsets(&Dim::b_stride, {&p.spec.k}), true, b_by_k, 64),
                 .source_a = {p.a.data(), dtype_bytes(t), 512},
                 .source_b = {p.b.data(), dtype_bytes(t), 512}});
          ASSERT_EQ(p.result(), want);
        }
  }
  cpu::set_bf16_form_for_test({});
}

TEST(Gemm, IsNearTheSumInF64) {
  for (DType t : {kF32, kBF16, kF16, kF64}) {
    GemmProblem p({{}, {65}, {130}, {1000}}, t, t, t, 2);
    p.run(2);
    const auto got = p.result();
    const auto am = p.offsets(&cpu::GemmDim::a_stride, {&p.spec.m});
    const auto ak = p.offsets(&cpu::GemmDim::a_stride, {&p.spec.k});
    const auto bn = p.offsets(&cpu::GemmDim::b_stride, {&p.spec.n});
    const auto bk = p.offsets(&cpu::GemmDim::b_stride, {&p.spec.k});
    size_t at = 0;
    for (int64_t m : am)
      for (int64_t n : bn) {
        double sum = 0, magnitude = 0;
        for (size_t k = 0; k < ak.size(); ++k) {
          const double x = read_element(t, p.a.data(), m + ak[k]) *
                           read_element(t, p.b.data(), n + bk[k]);
          sum += x;
          magnitude += std::abs(x);
        }
        const double sum_roundoff = t == kF64 ? 0x1p-53 : 0x1p-24;
        // 256 + 4 roundings of partial sums at most, and the one into C.
        ASSERT_NEAR(got[at], sum,
                    260 * sum_roundoff * magnitude + unit_roundoff(t) * std::abs(sum) * 1.01);
        ++at;
      }
  }
}

// Products of f32 split for tiles lose less than those of f32 units do.
TEST(Gemm, IsNoLessAccurateWhereItSplits) {
  constexpr int64_t kM = 128, kN = 128;
  for (const int64_t k : {128, 256, 1000, 4000})
    for (const bool positive : {false, true}) {
      double worst[2] = {0, 0}, squares[2] = {0, 0};
      for (const cpu::GemmForm form : {cpu::GemmForm::kPlain, cpu::GemmForm::kTiled}) {
        if (!cpu::set_bf16_form_for_test(form)) {
          cpu::set_bf16_form_for_test({});
          GTEST_SKIP() << "this machine does not";
        }
        GemmProblem p({{}, {kM}, {kN}, {k}}, kF32, kF32, kF32, 0);
        float* const a = static_cast<float*>(p.a.data());
        float* const b = static_cast<float*>(p.b.data());
        for (int64_t i = 0; positive && i < kM * k; ++i) a[i] = std::abs(a[i]);
        for (int64_t i = 0; positive && i < kN * k; ++i) b[i] = std::abs(b[i]);
        p.run(1);
        const auto got = p.result();
        for (int64_t m = 0; m < kM; ++m)
          for (int64_t n = 0; n < kN; ++n) {
            double sum = 0, magnitude = 0;
            for (int64_t i = 0; i < k; ++i) {
              const double x = double(a[m * k + i]) * b[i * kN + n];
              sum += x, magnitude += std::abs(x);
            }
            const double error = std::abs(got[size_t(m * kN + n)] - sum) / magnitude;
            const int at = form == cpu::GemmForm::kTiled;
            worst[at] = std::max(worst[at], error), squares[at] += error * error;
          }
      }
      cpu::set_bf16_form_for_test({});
      fmt::print("k {}{}: worst {:.2e} for {:.2e}, in the mean {:.2e} for {:.2e}\n", k,
                 positive ? ", positive" : "", worst[1], worst[0],
                 std::sqrt(squares[1] / (kM * kN)), std::sqrt(squares[0] / (kM * kN)));
      EXPECT_LT(worst[1], worst[0]);
      EXPECT_LT(squares[1], squares[0]);
    }
}

TEST(Gemm, BitsDoNotDependOnThreadsOrLayout) {
  for (const GemmShape& shape :
       {GemmShape{{}, {150}, {200}, {400}}, GemmShape{{}, {130}, {90}, {300}},
        GemmShape{{3}, {50}, {70}, {40}}, GemmShape{{}, {1}, {3000}, {400}},
        GemmShape{{}, {900}, {2}, {300}}, GemmShape{{2, 2}, {3, 20}, {8, 9}, {5, 60}}})
    for (DType t : {kF32, kBF16}) {
      SCOPED_TRACE(describe(shape));
      GemmProblem first(shape, t, t, t, 0);
      first.run(1);
      for (int threads : {2, 3, 7})
        for (uint64_t seed : {0, 1, 2, 3}) {
          GemmProblem p(shape, t, t, t, seed);
          p.run(threads);
          ASSERT_EQ(p.result(), first.result()) << threads << " threads, layout " << seed;
        }
    }
}

TEST(Gemm, BitsOfAPartAreThoseOfTheWhole) {
  GemmProblem whole({{}, {150}, {200}, {700}}, kF32, kF32, kF32, 0);
  whole.run(2);
  const float* a = static_cast<const float*>(whole.a.data());
  const float* b = static_cast<const float*>(whole.b.data());
  const float* c = static_cast<const float*>(whole.c.data());
  const bool triples = cpu::gemm_form(whole.spec) == cpu::GemmForm::kTripled;
  for (const auto& [m0, m1, n0, n1] : std::vector<std::array<int64_t, 4>>{{0, 1, 0, 200},
                                                                          {149, 150, 3, 4},
                                                                          {17, 40, 31, 97},
                                                                          {5, 150, 199, 200},
                                                                          {9, 139, 10, 140},
                                                                          {22, 150, 33, 200}}) {
    if (triples && std::min(m1 - m0, n1 - n0) < kProductLeast) continue;
    cpu::GemmSpec part{kF32, kF32, kF32, {}, {{m1 - m0, 700, 0, n1 - n0}},
                       {{n1 - n0, 0, 1, 1}}, {{700, 1, 200, 0}}};
    std::vector<float> got(size_t((m1 - m0) * (n1 - n0)));
    Buffer workspace(cpu::gemm_workspace_bytes(part, 1));
    cpu::gemm(part, a + m0 * 700, b + n0, got.data(), workspace.data(), 1);
    for (int64_t m = m0; m < m1; ++m)
      for (int64_t n = n0; n < n1; ++n)
        ASSERT_EQ(got[size_t((m - m0) * (n1 - n0) + n - n0)], c[m * 200 + n]) << m << " " << n;
  }
}

TEST(Gemm, EveryTargetKeepsTheContract) {
  const GemmShape shapes[] = {
      {{2}, {37}, {75}, {300}}, {{5}, {20}, {35}, {24}}, {{3, 2}, {16}, {16}, {16}}};
  for (int64_t target : {int64_t{HWY_AVX3}, int64_t{HWY_AVX2}, int64_t{HWY_EMU128}}) {
    hwy::SetSupportedTargetsForTest(0);
    const bool fallback = target == int64_t{HWY_EMU128};
    if (!fallback && !(hwy::SupportedTargets() & target)) continue;
    hwy::SetSupportedTargetsForTest(target);
    for (const GemmShape& shape : shapes)
      for (DType t : {kF32, kBF16, kF16, kF64})
        for (uint64_t seed : {0, 1, 2, 3, 4}) {
          SCOPED_TRACE(hwy::TargetName(target));
          GemmProblem p(shape, t, t, t, seed);
          const auto want = gemm_contract(p, !fallback);
          p.run(1);
          EXPECT_EQ(p.result(), want) << describe(shape) << dtype_name(t);
        }
  }
  hwy::SetSupportedTargetsForTest(0);
}

// Few rows walk over columns of B where they lie, over those of a B beyond the caches more than
// once.
TEST(Gemm, EveryTargetKeepsTheContractWhereFewRowsTurnB) {
  constexpr uint64_t kAlongK = 5;  // the layout of B, with C along n
  const auto turns = [](const GemmProblem& p) {
    return p.spec.k[0].b_stride == 1 && p.spec.n[0].b_stride > 1 && p.spec.n[0].c_stride == 1;
  };
  for (const auto& [rows, n, k] : std::vector<std::array<int64_t, 3>>{{1, 75, 300},
                                                                      {6, 40, 277},
                                                                      {11, 33, 600},
                                                                      {1, 4100, 277},
                                                                      {15, 4100, 277},
                                                                      {30, 4100, 277},
                                                                      {50, 4100, 277}})
    for (const DType c : {kF32, kBF16})
      for (const bool accumulate : {false, true}) {
        GemmProblem first({{}, {rows}, {n}, {k}}, kF32, kF32, c, kAlongK, accumulate);
        ASSERT_TRUE(turns(first));
        const auto want = gemm_contract(first, true);
        for (int64_t target : {int64_t{HWY_AVX3}, int64_t{HWY_AVX2}}) {
          hwy::SetSupportedTargetsForTest(0);
          if (!(hwy::SupportedTargets() & target)) continue;
          hwy::SetSupportedTargetsForTest(target);
          SCOPED_TRACE(fmt::format("{}: {} x {} x {} {}", hwy::TargetName(target), rows, n, k,
                                   dtype_name(c)));
          GemmProblem p({{}, {rows}, {n}, {k}}, kF32, kF32, c, kAlongK, accumulate);
          p.run(2);
          EXPECT_EQ(p.result(), want);
        }
        hwy::SetSupportedTargetsForTest(0);
      }
}

// Few columns read rows of a large A where they lie: whole blocks and not, a page apart and not.
TEST(Gemm, EveryTargetKeepsTheContractWhereFewColumnsMeetAFarA) {
  constexpr uint64_t kRowMajor = 0;
  for (const auto& [rows, n, k] : std::vector<std::array<int64_t, 3>>{
           {4099, 16, 300}, {1100, 40, 1000}, {800, 64, 2048}, {525, 1, 2049}})
    for (const DType t : {kF32, kF64})
      for (const bool accumulate : {false, true}) {
        const GemmShape shape{{}, {rows}, {n}, {k}};
        const auto want = gemm_contract(GemmProblem(shape, t, t, t, kRowMajor, accumulate), true);
        for (const int64_t target : {int64_t{HWY_AVX3}, int64_t{HWY_AVX2}}) {
          hwy::SetSupportedTargetsForTest(0);
          if (!(hwy::SupportedTargets() & target)) continue;
          hwy::SetSupportedTargetsForTest(target);
          SCOPED_TRACE(fmt::format("{}: {} x {} x {} {}", hwy::TargetName(target), rows, n, k,
                                   dtype_name(t)));
          GemmProblem p(shape, t, t, t, kRowMajor, accumulate);
          p.run(2);
          EXPECT_EQ(p.result(), want);
        }
        hwy::SetSupportedTargetsForTest(0);
      }
}

// Where f32 are split into bf16: numbers of every magnitude, infinities and NaN, in rows of A and
// columns of B that hold them and in all others.
TEST(Gemm, TakesEveryMagnitudeWhereItSplits) {
  constexpr float kInf = std::numeric_limits<float>::infinity(),
                  kMax = std::numeric_limits<float>::max();
  constexpr int64_t kM = 130, kN = 150, kK = 300;
  for (uint64_t seed : {0, 1, 2, 3, 4}) {
    GemmProblem p({{}, {kM}, {kN}, {kK}}, kF32, kF32, kF32, seed);
    if (cpu::gemm_form(p.spec) != cpu::GemmForm::kTripled) GTEST_SKIP() << "this machine does not";
    const auto am = p.offsets(&cpu::GemmDim::a_stride, {&p.spec.m}),
               ak = p.offsets(&cpu::GemmDim::a_stride, {&p.spec.k});
    const auto bn = p.offsets(&cpu::GemmDim::b_stride, {&p.spec.n}),
               bk = p.offsets(&cpu::GemmDim::b_stride, {&p.spec.k});
    float* const a = static_cast<float*>(p.a.data());
    float* const b = static_cast<float*>(p.b.data());
    const auto scale_row = [&](size_t m, float by) {
      for (int64_t k : ak) a[am[m] + k] *= by;
    };
    const auto scale_col = [&](size_t n, float by) {
      for (int64_t k : bk) b[bn[n] + k] *= by;
    };
    scale_row(3, 0x1p-60f), scale_row(4, 0x1p-100f), scale_row(5, 0x1p-130f),
        scale_row(33, 0x1p100f);
    scale_col(2, 0x1p-60f), scale_col(17, 0x1p-100f), scale_col(40, 0x1p-140f),
        scale_col(99, 0x1p100f);
    for (int64_t k = 0; k < 256; ++k) a[am[6] + ak[size_t(k)]] *= 0x1p-70f;  // of one block of K
    a[am[7] + ak[10]] = kInf, a[am[8] + ak[290]] = -kInf, a[am[9] + ak[0]] = NAN,
              a[am[10] + ak[5]] = kMax;
    b[bn[20] + bk[10]] = kInf, b[bn[21] + bk[299]] = NAN, b[bn[22] + bk[100]] = -kMax,
               b[bn[23] + bk[10]] = 0;
    a[am[10] + ak[100]] = 0x1p-20f;
    for (int64_t k : ak)
      a[am[11] + k] = 0x1.008p100f;  // all products overflow, and none becomes a NaN
    for (int64_t k : bk) b[bn[30] + k] = 0x1.008p100f;
    p.run(2);
    const auto got = p.result();
    ASSERT_EQ(got[11 * kN + 30], kInf);
    for (size_t m = 0; m < size_t{kM}; ++m)
      for (size_t n = 0; n < size_t{kN}; ++n) {
        double sum = 0, magnitude = 0;
        for (size_t k = 0; k < size_t{kK}; ++k) {
          const double x = double(a[am[m] + ak[k]]) * b[bn[n] + bk[k]];
          sum += x, magnitude += std::abs(x);
        }
        const double is = got[m * kN + n];
        SCOPED_TRACE(fmt::format("{} {} {}: {} for {}", seed, m, n, is, sum));
        if (std::isnan(sum)) {
          ASSERT_TRUE(std::isnan(is));
        } else if (std::isinf(sum)) {
          ASSERT_EQ(is, sum);
        } else if (std::abs(sum) > kMax) {  // by sums of either sign
          ASSERT_FALSE(std::isfinite(is));
        } else {
          ASSERT_NEAR(is, sum, 30 * 0x1p-24 * magnitude + 0x1p-149);
        }
      }
  }
}

// Few elements of C or few columns, around the vectors of every target; planned once for all runs.
void check_small_products(bool fuses) {
  const int64_t extents[] = {1, 2, 3, 4, 5, 8, 15, 16, 17, 33};
  uint64_t seed = 0;
  for (int64_t m : extents)
    for (int64_t n : extents)
      for (int64_t k : {1, 2, 4, 7, 32})
        for (bool accumulate : {false, true}) {
          const GemmShape shape{{}, {m}, {n}, {k}};
          SCOPED_TRACE(describe(shape) + (accumulate ? "+" : ""));
          seed = (seed + 1) % 5;
          GemmProblem first(shape, kF32, kF32, kF32, seed, accumulate);
          GemmProblem second(shape, kF32, kF32, kF32, seed, accumulate);
          const auto want = gemm_contract(first, fuses);
          cpu::GemmRunner runner(first.spec, 1);
          Buffer workspace(cpu::gemm_workspace_bytes(first.spec, 1));
          for (GemmProblem* p : {&first, &second}) {  // of equal values in other places
            runner.run(p->a.data(), p->b.data(), p->c.data(), workspace.data());
            ASSERT_EQ(p->result(), want);
            ASSERT_TRUE(p->c.guard_intact());
          }
        }
}
TEST(Gemm, SmallProductsKeepTheContractWhereverTheyLie) {
  for (int64_t target : {int64_t{HWY_AVX3}, int64_t{HWY_AVX2}, int64_t{HWY_EMU128}}) {
    hwy::SetSupportedTargetsForTest(0);
    const bool fallback = target == int64_t{HWY_EMU128};
    if (!fallback && !(hwy::SupportedTargets() & target)) continue;
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    check_small_products(!fallback);
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST(Gemm, BroadcastOperandsAndNegativeStrides) {
  // A row of A for all m; B walked backwards.
  std::vector<float> a(40), b(40 * 50), c(6 * 50);
  for (size_t i = 0; i < a.size(); ++i) a[i] = float(value_at(1, i));
  for (size_t i = 0; i < b.size(); ++i) b[i] = float(value_at(2, i));
  cpu::GemmSpec spec{kF32, kF32, kF32, {}, {{6, 0, 0, 50}}, {{50, 0, -1, 1}}, {{40, 1, 50, 0}}};
  Buffer workspace(cpu::gemm_workspace_bytes(spec, 1));
  cpu::gemm(spec, a.data(), b.data() + 49, c.data(), workspace.data(), 1);
  for (int m = 0; m < 6; ++m)
    for (int n = 0; n < 50; ++n) {
      double sum = 0;
      for (int k = 0; k < 40; ++k) sum += double(a[k]) * b[k * 50 + 49 - n];
      ASSERT_NEAR(c[m * 50 + n], sum, 1e-5);
    }
}

TEST(Gemm, EmptyExtents) {
  for (DType t : {kF32, kBF16, kF64}) {
    GemmProblem zero({{2}, {3}, {4}, {0}}, t, t, t, 1);
    zero.run(2);
    EXPECT_EQ(zero.result(), std::vector<double>(24, 0.0));
    GemmProblem keep({{2}, {3}, {4}, {0}}, t, t, t, 1, true);
    const auto before = keep.result();
    keep.run(2);
    EXPECT_EQ(keep.result(), before);
    for (const GemmShape& s : {GemmShape{{0}, {3}, {4}, {5}}, GemmShape{{2}, {0}, {4}, {5}},
                               GemmShape{{2}, {3}, {0}, {5}}, GemmShape{{2}, {3}, {0}, {0}}}) {
      GemmProblem none(s, t, t, t, 0);
      EXPECT_EQ(cpu::gemm_workspace_bytes(none.spec, 4), 0);
      none.run(2);
    }
  }
}

TEST(Gemm, IntegersWrap) {
  const std::vector<uint8_t> a = {200, 3, 255, 7, 9, 250}, b = {100, 2, 255, 1, 8, 250};
  std::vector<uint8_t> c = {1, 2, 3, 4};  // [2, 2] = [2, 3] x [3, 2]
  cpu::GemmSpec spec{kU8, kU8, kU8, {}, {{2, 3, 0, 2}}, {{2, 0, 1, 1}}, {{3, 1, 2, 0}}, true};
  Buffer workspace(cpu::gemm_workspace_bytes(spec, 2));
  cpu::gemm(spec, a.data(), b.data(), c.data(), workspace.data(), 2);
  for (int m = 0; m < 2; ++m)
    for (int n = 0; n < 2; ++n) {
      unsigned sum = unsigned(1 + m * 2 + n);
      for (int k = 0; k < 3; ++k) sum += unsigned(a[size_t(m * 3 + k)]) * b[size_t(k * 2 + n)];
      EXPECT_EQ(c[size_t(m * 2 + n)], uint8_t(sum));
    }
  const int64_t big = std::numeric_limits<int64_t>::max();
  int64_t out = 0;
  const int64_t two = 2;
  const cpu::GemmSpec one{kI64, kI64, kI64, {}, {}, {}, {}};
  Buffer of_one(cpu::gemm_workspace_bytes(one, 1));
  cpu::gemm(one, &big, &two, &out, of_one.data(), 1);
  EXPECT_EQ(out, -2);
}

template <typename T>
constexpr DType kIntegerOf = std::is_signed_v<T> ? sizeof(T) == 1   ? kI8
                                                   : sizeof(T) == 4 ? kI32
                                                                    : kI64
                             : sizeof(T) == 1    ? kU8
                             : sizeof(T) == 4    ? kU32
                                                 : kU64;

// Products of T into C against sums element by element, of any bits.
template <typename T, typename C>
void expect_integer_products() {
  for (const GemmShape& shape : kShapes) {
    int64_t work = 1;
    for (const auto* dims : {&shape.batch, &shape.m, &shape.n, &shape.k})
      for (int64_t extent : *dims) work *= extent;
    if (work > 1 << 18) continue;  // the sums below take their time
    for (uint64_t layout = 0; layout < 4; ++layout) {
      const GemmProblem floats(shape, kF64, kF64, kF64, layout / 2, layout % 2 == 1);
      cpu::GemmSpec spec = floats.spec;
      const auto of = [](int64_t cpu::GemmDim::*stride, const auto&... dims) {
        return GemmProblem::offsets(stride, {&dims...});
      };
      const auto a_rows = of(&cpu::GemmDim::a_stride, spec.batch, spec.m),
                 b_cols = of(&cpu::GemmDim::b_stride, spec.batch, spec.n),
                 to = of(&cpu::GemmDim::c_stride, spec.batch, spec.m, spec.n),
                 a_ks = of(&cpu::GemmDim::a_stride, spec.k),
                 b_ks = of(&cpu::GemmDim::b_stride, spec.k),
                 batch = of(&cpu::GemmDim::c_stride, spec.batch);
      SCOPED_TRACE(describe(shape));
      spec.a = spec.b = kIntegerOf<T>, spec.c = kIntegerOf<C>;
      const auto any = [](auto element, int64_t f64_bytes, uint64_t seed) {
        std::vector<decltype(element)> list(size_t(f64_bytes / 8));
        for (size_t i = 0; i < list.size(); ++i)
          list[i] = static_cast<decltype(element)>(int64_t(value_at(seed, i) * 9e18));
        return list;
      };
      const std::vector<T> a = any(T{}, floats.a.bytes(), 1), b = any(T{}, floats.b.bytes(), 2);
      std::vector<C> c = any(C{}, floats.c.bytes(), 3), want = c;
      const size_t n_m = a_rows.size() / batch.size(), n_n = b_cols.size() / batch.size();
      for (size_t i = 0; i < to.size(); ++i) {
        const size_t of_batch = i / (n_m * n_n), m = i / n_n % n_m, n = i % n_n;
        C& element = want[size_t(to[i])];
        uint64_t sum = spec.accumulate ? static_cast<uint64_t>(element) : 0;
        for (size_t k = 0; k < a_ks.size(); ++k)
          sum += static_cast<uint64_t>(a[size_t(a_rows[of_batch * n_m + m] + a_ks[k])]) *
                 static_cast<uint64_t>(b[size_t(b_cols[of_batch * n_n + n] + b_ks[k])]);
        element = static_cast<C>(sum);
      }
      Buffer workspace(cpu::gemm_workspace_bytes(spec, 2));
      cpu::gemm(spec, a.data(), b.data(), c.data(), workspace.data(), 2);
      ASSERT_TRUE(c == want);
      ASSERT_TRUE(workspace.guard_intact());
    }
  }
}

TEST(Gemm, IntegersOfEveryWidthInEveryLayout) {
  expect_integer_products<int32_t, int32_t>();
  expect_integer_products<int8_t, int32_t>();
  expect_integer_products<uint8_t, uint8_t>();
  expect_integer_products<uint32_t, uint64_t>();
  expect_integer_products<int32_t, int64_t>();
  expect_integer_products<int64_t, int64_t>();
  expect_integer_products<uint64_t, uint32_t>();
}

// K = 1 and a factor of one make gemm a converter: every f16 and bf16, and f32s around the ties.
TEST(Gemm, WidensAndRoundsHalvesExactly) {
  for (DType t : {kF16, kBF16}) {
    std::vector<uint16_t> all(65536), back(65536);
    for (size_t i = 0; i < all.size(); ++i) all[i] = uint16_t(i);
    std::vector<float> wide(65536);
    const float one = 1;
    auto convert = [&](DType from, const void* x, DType to, void* y, int64_t n) {
      cpu::GemmSpec s{kF32, from, to, {}, {}, {{n, 0, 1, 1}}, {}};
      Buffer workspace(cpu::gemm_workspace_bytes(s, 1));
      cpu::gemm(s, &one, x, y, workspace.data(), 1);
    };
    convert(t, all.data(), kF32, wide.data(), 65536);
    for (size_t i = 0; i < all.size(); ++i) {
      const float want = float(read_element(t, all.data(), int64_t(i)));
      ASSERT_TRUE(wide[i] == want || (wide[i] != wide[i] && want != want)) << i;
    }
    convert(kF32, wide.data(), t, back.data(), 65536);
    for (size_t i = 0; i < all.size(); ++i) {
      if (wide[i] != wide[i]) continue;
      ASSERT_EQ(back[i], all[i] == 0x8000 ? 0 : all[i]);  // a sum of -0 and 0 is 0
    }
    std::vector<float> odd;
    for (uint32_t i = 0; i < 65536; ++i)
      for (uint32_t low : {0u, 1u, 0xfffu, 0x1000u, 0x1001u, 0x7fffu, 0x8000u, 0x8001u, 0xf000u})
        odd.push_back(std::bit_cast<float>((i << 16) + low));
    std::vector<uint16_t> got(odd.size()), want(odd.size());
    convert(kF32, odd.data(), t, got.data(), int64_t(odd.size()));
    for (size_t i = 0; i < odd.size(); ++i) {
      write_element(t, want.data(), int64_t(i), odd[i] + 0.0);
      const double x = read_element(t, got.data(), int64_t(i));
      const double y = read_element(t, want.data(), int64_t(i));
      ASSERT_TRUE(x == y || (x != x && y != y)) << odd[i] << " " << x << " " << y;
    }
  }
}

TEST(Gemm, WorkspaceIsTheDocumentedFormula) {
  cpu::GemmSpec s{
      kF32, kF32, kF32, {}, {{2048, 768, 0, 768}}, {{768, 0, 1, 1}}, {{768, 1, 768, 0}}};
  EXPECT_EQ(cpu::gemm_workspace_bytes(s, 1), 4 * 256 * (768 + 192));
  EXPECT_EQ(cpu::gemm_workspace_bytes(s, 2), 2 * 4 * 256 * (768 + 180));
  s.c = kBF16;
  EXPECT_EQ(cpu::gemm_workspace_bytes(s, 1), 4 * 256 * (768 + 180) + 4 * 516 * 768);
  s.k[0].extent = 2048;
  const int64_t wide = cpu::gemm_workspace_bytes(s, 1);
  s.a = s.b = kBF16;  // pairs: all of K at once, so that no sums wait
  EXPECT_EQ(cpu::gemm_workspace_bytes(s, 1), 2 * 2048 * (768 + 96) + 4 * 96 * 32);
  EXPECT_GT(cpu::gemm_workspace_bytes(s, 1), wide);
  s.k[0].extent = 15;
  EXPECT_EQ(cpu::gemm_workspace_bytes(s, 1), 4 * 15 * (768 + 192));
}

}  // namespace
}  // namespace stow::testing
