// The order of sums that the op kernels document, bit by bit, against loops that spell it out.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "stowage/core/half.h"
#include "stowage/ir/row_program.h"
#include "stowage/runtime/cpu/kernels/op_kernels.h"
#include "tests/support/test_tensor.h"

namespace stow {
namespace {

using testing::Rng;
using testing::TestTensor;
using testing::uniform;

std::vector<float> random_floats(int64_t n, Rng& rng) {
  std::vector<float> values(static_cast<size_t>(n));
  // Exponents far apart: another order gives other bits.
  for (float& v : values)
    v = std::ldexp(std::uniform_real_distribution<float>(-1, 1)(rng),
                   static_cast<int>(uniform(rng, -8, 8)));
  return values;
}

// ir/row_program.h, kReduceRow.
float row_sum(const std::vector<float>& x) {
  float total = 0;
  for (size_t begin = 0; begin < x.size(); begin += 4096) {
    float lane[16] = {};
    for (size_t i = begin; i < std::min(x.size(), begin + 4096); ++i) lane[i % 16] += x[i];
    for (size_t half : {8u, 4u, 2u, 1u})
      for (size_t l = 0; l < half; ++l) lane[l] += lane[l + half];
    total = begin == 0 ? lane[0] : total + lane[0];
  }
  return total;
}

// ir/row_program.h, kReduceColumns, for one column.
float column_sum(const std::vector<float>& x) {
  const auto size = static_cast<size_t>(column_chunk_rows(static_cast<int64_t>(x.size())));
  float total = 0;
  for (size_t begin = 0; begin < x.size(); begin += size) {
    float chunk = 0;
    for (size_t i = begin; i < std::min(x.size(), begin + size); ++i) chunk += x[i];
    total = begin == 0 ? chunk : total + chunk;
  }
  return total;
}

std::vector<float> run_sum(const std::vector<float>& x, const Dims& dims, const Dims& axes,
                           const Dims& out_dims, int threads, Rng& rng) {
  TestTensor in(DType::kF32, dims, rng), out(DType::kF32, out_dims, rng);
  in.set_bytes(TestTensor::of<float>(dims, x).bytes());
  const Params params = AxesParams{axes};
  const int64_t bytes =
      cpu::op_scratch_bytes(OpKind::kReduceSum, params, {&in.view, 1}, {&out.view, 1}, threads);
  std::vector<float> scratch(static_cast<size_t>(bytes / 4 + 1));
  cpu::run_op(OpKind::kReduceSum, params, {&in.view, 1}, {&out.view, 1}, scratch.data(), threads);
  return out.values<float>();
}

TEST(OpKernelsOrder, LastAxisReducedIsTheRowOrder) {
  Rng rng(1);
  // [A, B, C] over A and C: B rows of A * C elements.
  for (const Dims& dims : {Dims{3, 2, 4000}, Dims{5, 9, 13}, Dims{1, 1, 50000}, Dims{2, 20, 4096}})
    for (int threads = 1; threads <= 3; ++threads) {
      const int64_t a = dims[0], b = dims[1], c = dims[2];
      const std::vector<float> x = random_floats(a * b * c, rng);
      const auto got = run_sum(x, dims, {0, 2}, {b}, threads, rng);
      for (int64_t j = 0; j < b; ++j) {
        std::vector<float> row;
        for (int64_t i = 0; i < a; ++i)
          row.insert(row.end(), x.begin() + (i * b + j) * c, x.begin() + (i * b + j + 1) * c);
        ASSERT_EQ(got[static_cast<size_t>(j)], row_sum(row)) << to_string(Shape(dims));
      }
    }
}

TEST(OpKernelsOrder, LastAxisKeptIsTheColumnOrder) {
  Rng rng(2);
  // [A, B, C] over A: column (B, C); [A, B, C] over A and B: column C.
  for (const Dims& dims :
       {Dims{3, 2, 40}, Dims{500, 30, 3}, Dims{15, 16, 17}, Dims{4000, 2, 1}, Dims{1, 3000, 300}})
    for (int threads = 1; threads <= 3; ++threads) {
      const int64_t a = dims[0], b = dims[1], c = dims[2];
      const std::vector<float> x = random_floats(a * b * c, rng);
      const auto over_a = run_sum(x, dims, {0}, {b, c}, threads, rng);
      const auto over_ab = run_sum(x, dims, {1, 0}, {c}, threads, rng);
      for (int64_t k = 0; k < c; ++k) {
        std::vector<float> all;
        for (int64_t i = 0; i < a * b; ++i) all.push_back(x[static_cast<size_t>(i * c + k)]);
        ASSERT_EQ(over_ab[static_cast<size_t>(k)], column_sum(all)) << to_string(Shape(dims));
      }
      for (int64_t jk = 0; jk < b * c; ++jk) {
        std::vector<float> column;
        for (int64_t i = 0; i < a; ++i) column.push_back(x[static_cast<size_t>(i * b * c + jk)]);
        ASSERT_EQ(over_a[static_cast<size_t>(jk)], column_sum(column)) << to_string(Shape(dims));
      }
    }
}

TEST(OpKernelsOrder, ScatterAddsInTheOrderOfTheUpdates) {
  Rng rng(3);
  // A tall table (shares of rows) and a wide one (shares of columns); many collisions.
  for (const Dims& dims : {Dims{20000, 8}, Dims{40, 600}}) {
    const int64_t rows = dims[0], d = dims[1], n = 3000;
    const std::vector<float> x = random_floats(rows * d, rng), u = random_floats(n * d, rng);
    std::vector<int32_t> index(static_cast<size_t>(n));
    for (int32_t& i : index)
      i = static_cast<int32_t>(uniform(rng, 0, 1) == 0 ? uniform(rng, 0, 5)
                                                       : uniform(rng, -2, rows + 1));
    const GatherParams params{{1}, {0}, {0}, {1, d}};
    for (DType t : {DType::kF32, DType::kBF16, DType::kF16}) {
      const auto rounded = [t](float v) {
        if (t == DType::kF32) return v;
        Bf16 b;
        F16 h;
        narrow(v, b);
        narrow(v, h);
        return t == DType::kBF16 ? widen(b) : widen(h);
      };
      const auto tensor = [&](const Dims& shape, const std::vector<float>& values) {
        if (t == DType::kF32) return TestTensor::of<float>(shape, values);
        std::vector<uint16_t> bits;
        for (float v : values) {
          Bf16 b;
          F16 h;
          narrow(v, b);
          narrow(v, h);
          bits.push_back(t == DType::kBF16 ? b.bits : h.bits);
        }
        return TestTensor::bits(t, shape, bits);
      };
      std::vector<float> want;
      for (float v : x) want.push_back(rounded(v));
      for (int64_t i = 0; i < n; ++i) {
        const int64_t row = index[static_cast<size_t>(i)];
        if (row < 0 || row >= rows) continue;
        for (int64_t k = 0; k < d; ++k)
          want[static_cast<size_t>(row * d + k)] += rounded(u[static_cast<size_t>(i * d + k)]);
      }
      const auto expected = tensor(dims, want).bytes();
      auto indices = TestTensor::of<int32_t>({n, 1}, index);
      auto updates = tensor({n, d}, u);
      for (int threads = 1; threads <= 3; ++threads) {
        TestTensor y = tensor(dims, x);
        const std::vector<TensorView> in = {y.view, indices.view, updates.view};
        std::vector<int64_t> scratch(static_cast<size_t>(
            cpu::op_scratch_bytes(OpKind::kScatterAdd, params, in, {&y.view, 1}, threads) / 8));
        cpu::run_op(OpKind::kScatterAdd, params, in, {&y.view, 1}, scratch.data(), threads);
        ASSERT_TRUE(y.bytes() == expected) << dtype_name(t) << ", " << threads << " threads";
      }
    }
  }
}

// Windows that overlap in part take another way, which must give the same rounding.
TEST(OpKernelsOrder, OverlappingHalfWindowsRoundOnce) {
  constexpr int64_t kN = 300;
  std::vector<int32_t> index(kN, 1);
  std::vector<uint16_t> ones(2 * kN, 0x3f80);  // bf16 1
  auto indices = TestTensor::of<int32_t>({kN, 1}, index);
  auto updates = TestTensor::bits(DType::kBF16, {kN, 2}, ones);
  auto y = TestTensor::bits<uint16_t>(DType::kBF16, {4}, {0, 0, 0x3f80, 0});
  const GatherParams params{{1}, {}, {0}, {2}};
  const std::vector<TensorView> in = {y.view, indices.view, updates.view};
  std::vector<int64_t> scratch(8);
  ASSERT_EQ(cpu::op_scratch_bytes(OpKind::kScatterAdd, params, in, {&y.view, 1}, 2), 64);
  cpu::run_op(OpKind::kScatterAdd, params, in, {&y.view, 1}, scratch.data(), 2);
  // 300 and 301 in bf16 (8 bits): 300 and, a tie to even, 300; repeated rounding would stop at 256.
  EXPECT_EQ(y.values<uint16_t>(), (std::vector<uint16_t>{0, 0x4396, 0x4396, 0}));
}

// gemm.h with k = (place, channel): blocks of 256, each from zero, added in order. Of a convolution
// with holes, the places that fall on elements.
TEST(OpKernelsOrder, ConvolutionsSumPlacesThenChannels) {
  if (!(hwy::SupportedTargets() & (HWY_AVX2 | HWY_AVX3 | HWY_NEON)))
    GTEST_SKIP() << "this machine does not fuse";
  constexpr int64_t kIn = 9, kChannels = 70, kFeatures = 5, kTaps = 5, kLow = 2;
  Rng rng(11);
  const auto x = random_floats(kChannels * kIn, rng),
             k = random_floats(kFeatures * kChannels * kTaps, rng);
  for (const int64_t holes : {1, 2}) {
    const int64_t n_out = (kIn - 1) * holes + 1 + 2 * kLow - kTaps + 1;
    const ConvParams p{{1}, {kLow}, {kLow}, {holes}, {1}};
    auto lhs = TestTensor::of<float>({1, kChannels, kIn}, x);
    auto rhs = TestTensor::of<float>({kFeatures, kChannels, kTaps}, k);
    TestTensor y(DType::kF32, {1, kFeatures, n_out});
    const TensorView in[] = {lhs.view, rhs.view};
    const int64_t bytes = cpu::op_scratch_bytes(OpKind::kConvolution, p, in, {&y.view, 1}, 1);
    std::vector<std::byte> memory(static_cast<size_t>(bytes + 64));
    void* scratch = memory.data() + (-reinterpret_cast<intptr_t>(memory.data()) & 63);
    cpu::run_op(OpKind::kConvolution, p, in, {&y.view, 1}, scratch, 1);
    const std::vector<float> got = y.values<float>();
    for (int64_t f = 0; f < kFeatures; ++f)
      for (int64_t o = 0; o < n_out; ++o) {
        float total = 0, block = 0;
        int64_t n = 0;
        for (int64_t t = 0; t < kTaps; ++t) {
          const int64_t place = o + t - kLow;
          if (place % holes != 0) continue;
          const int64_t i = place / holes;
          const bool inside = place >= 0 && i < kIn;
          for (int64_t c = 0; c < kChannels; ++c) {
            block = std::fma(inside ? x[static_cast<size_t>(c * kIn + i)] : 0.0f,
                             k[static_cast<size_t>((f * kChannels + c) * kTaps + t)], block);
            if (++n % 256 != 0) continue;
            total = n == 256 ? block : total + block;
            block = 0;
          }
        }
        if (n % 256 != 0) total = n < 256 ? block : total + block;
        ASSERT_EQ(got[static_cast<size_t>(f * n_out + o)], total) << f << " " << o << " " << holes;
      }
  }
}

// Neither holes nor padding are made in memory, nor windows.
TEST(OpKernelsOrder, ConvolutionsTakeLittleScratch) {
  const auto view = [](const Dims& dims) {
    return TensorView{nullptr, DType::kF32, dims, contiguous_strides(Shape(dims))};
  };
  const TensorView in[] = {view({8, 32, 64, 64}), view({32, 32, 3, 3})};
  const TensorView plain = view({8, 32, 64, 64}), stretched = view({8, 32, 256, 256});
  const auto bytes = [&](const ConvParams& p, const TensorView& out) {
    return cpu::op_scratch_bytes(OpKind::kConvolution, p, in, {&out, 1}, 1);
  };
  EXPECT_LE(bytes({{1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}}, plain), 128 << 10);
  EXPECT_LE(bytes({{1, 1}, {2, 2}, {3, 3}, {4, 4}, {1, 1}}, stretched), 128 << 10);
}

TEST(OpKernelsOrder, SortingThreadsHaveScratchOfTheirOwn) {
  Rng rng(4);
  const Dims dims = {64, 3000};
  auto x = TestTensor::of<float>(dims, random_floats(64 * 3000, rng));
  std::vector<float> want = x.values<float>();
  for (auto row = want.begin(); row != want.end(); row += dims[1]) std::sort(row, row + dims[1]);
  for (int threads = 1; threads <= 3; ++threads) {
    TestTensor y(DType::kF32, dims);
    std::vector<int64_t> scratch(static_cast<size_t>(
        cpu::op_scratch_bytes(OpKind::kSort, AxisParams{1}, {&x.view, 1}, {&y.view, 1}, threads) /
        8));
    cpu::run_op(OpKind::kSort, AxisParams{1}, {&x.view, 1}, {&y.view, 1}, scratch.data(), threads);
    ASSERT_EQ(y.values<float>(), want) << threads << " threads";
    // A race would seldom show in the result; what each thread leaves behind does.
    const size_t share = scratch.size() / static_cast<size_t>(threads);
    for (size_t t = 0; t < static_cast<size_t>(threads); ++t) EXPECT_NE(scratch[t * share], 0) << t;
  }
}

// Index vectors that go along with an axis of the operand, and along with either axis; all in
// range, and some not.
TEST(OpKernelsOrder, IndicesAlongAnAxisLeadToTheirOwnLine) {
  Rng rng(7);
  constexpr int64_t kRows = 70, kCols = 1500;
  const std::vector<float> x = random_floats(kRows * kCols, rng);
  const std::vector<float> u = random_floats(kRows * kCols, rng);
  for (const int64_t axis : {0, 1})
    for (const bool all_within : {true, false}) {
      const int64_t extent = axis == 0 ? kRows : kCols;
      std::vector<int32_t> index(static_cast<size_t>(kRows * kCols));
      for (int32_t& i : index)
        i = static_cast<int32_t>(all_within ? uniform(rng, 0, extent - 1)
                                            : uniform(rng, -2, extent + 1));
      const GatherParams params{.offset_axes = {},
                                .collapsed_axes = {0, 1},
                                .start_index_map = {axis},
                                .slice_sizes = {1, 1},
                                .batch_axes = {1 - axis},
                                .index_batch_axes = {1 - axis}};
      std::vector<float> read(x.size(), -1.0f), sums = x;
      for (int64_t r = 0; r < kRows; ++r)
        for (int64_t c = 0; c < kCols; ++c) {
          const auto at = static_cast<size_t>(r * kCols + c);
          const int64_t i = index[at];
          if (i < 0 || i >= extent) continue;
          const auto place = static_cast<size_t>(axis == 0 ? i * kCols + c : r * kCols + i);
          read[at] = x[place];
          sums[place] += u[at];
        }
      const Dims dims = {kRows, kCols};
      const auto operand = TestTensor::of<float>(dims, x), updates = TestTensor::of<float>(dims, u);
      const auto indices = TestTensor::of<int32_t>({kRows, kCols, 1}, index);
      const auto filling = TestTensor::of<float>({}, {-1.0f});
      TestTensor y(DType::kF32, dims);
      for (int threads : {1, 3}) {
        const TensorView from[] = {operand.view, indices.view, filling.view};
        cpu::run_op(OpKind::kGather, params, from, {&y.view, 1}, nullptr, threads);
        EXPECT_EQ(y.values<float>(), read) << axis << " " << all_within << " " << threads;
        const TensorView onto[] = {operand.view, indices.view, updates.view};
        cpu::run_op(OpKind::kScatterAdd, params, onto, {&y.view, 1}, nullptr, threads);
        EXPECT_EQ(y.values<float>(), sums) << axis << " " << all_within << " " << threads;
      }
    }
}

TEST(OpKernelsOrder, ACumulativeSumOfOneLaneAddsOneAfterAnother) {
  Rng rng(6);
  const std::vector<float> values = random_floats(1000, rng);
  auto x = TestTensor::of<float>({1000}, values);
  for (const bool backwards : {false, true}) {
    std::vector<float> want = values;
    for (size_t i = 1; i < want.size(); ++i) {
      const size_t last = want.size() - 1;
      if (backwards) want[last - i] = want[last - i + 1] + want[last - i];
      else want[i] = want[i - 1] + want[i];
    }
    TestTensor y(DType::kF32, {1000});
    cpu::run_op(OpKind::kCumSum, AxisParams{0, backwards}, {&x.view, 1}, {&y.view, 1}, nullptr, 2);
    EXPECT_EQ(y.values<float>(), want);
  }
}

// Zeros of both signs are equal, and so are all NaNs, which come last, or first where the order
// descends.
TEST(OpKernelsOrder, EqualFloatsStayInOrderHoweverLongALaneIs) {
  Rng rng(5);
  for (int64_t n : {5, 100, 129, 1000, 20000})
    for (const bool descending : {false, true}) {
      std::vector<uint32_t> bits(static_cast<size_t>(n));
      for (uint32_t& b : bits) {
        const auto kind = uniform(rng, 0, 9);
        const auto sign = static_cast<uint32_t>(uniform(rng, 0, 1)) << 31;
        b = kind == 0   ? sign
            : kind == 1 ? sign | 0x7fc00000u | static_cast<uint32_t>(uniform(rng, 0, 1000))
            : kind == 2 ? sign | 0x7f800000u
                        : sign | static_cast<uint32_t>(uniform(rng, 0, 0x7f7fffff));
      }
      std::vector<uint32_t> want = bits;
      std::stable_sort(want.begin(), want.end(), [&](uint32_t x, uint32_t y) {
        const float a = std::bit_cast<float>(x), b = std::bit_cast<float>(y);
        if (std::isnan(a) || std::isnan(b))
          return descending ? std::isnan(a) && !std::isnan(b) : !std::isnan(a) && std::isnan(b);
        return descending ? a > b : a < b;
      });
      auto x = TestTensor::of<float>({n}, std::vector<float>(static_cast<size_t>(n)));
      std::memcpy(x.view.data, bits.data(), bits.size() * 4);
      TestTensor y(DType::kF32, {n});
      const AxisParams params{0, descending};
      std::vector<int64_t> scratch(static_cast<size_t>(
          cpu::op_scratch_bytes(OpKind::kSort, params, {&x.view, 1}, {&y.view, 1}, 1) / 8));
      cpu::run_op(OpKind::kSort, params, {&x.view, 1}, {&y.view, 1}, scratch.data(), 1);
      std::vector<uint32_t> got(bits.size());
      std::memcpy(got.data(), y.view.data, got.size() * 4);
      EXPECT_EQ(got, want) << n << (descending ? " down" : " up");
    }
}

// 2^24 + 2^16 + 1 has no f32; as the nearest one it would be a tie in bf16 and go down.
TEST(OpKernelsOrder, IotaRoundsOnce) {
  constexpr int64_t kCount = (1 << 24) + (1 << 16) + 1;
  std::vector<uint16_t> memory(kCount + 1);
  const TensorView y = {
      reinterpret_cast<std::byte*>(memory.data()), DType::kBF16, {kCount + 1}, {1}};
  cpu::run_op(OpKind::kIota, IotaParams{{DType::kBF16, Shape(y.dims)}, 0}, {}, {&y, 1}, nullptr, 2);
  EXPECT_EQ(memory[kCount], 0x4b81);
  EXPECT_EQ(memory[kCount - 1], 0x4b80);
}

TEST(OpKernelsOrder, ConcatenateLeavesWhatLiesInPlace) {
  auto y = TestTensor::of<int32_t>({5}, {1, 2, 0, 0, 0});
  auto tail = TestTensor::of<int32_t>({3}, {7, 8, 9});
  TensorView head = y.view;
  head.dims = {2};
  const std::vector<TensorView> in = {head, tail.view};
  cpu::run_op(OpKind::kConcatenate, AxisParams{0}, in, {&y.view, 1}, nullptr, 2);
  EXPECT_EQ(y.values<int32_t>(), (std::vector<int32_t>{1, 2, 7, 8, 9}));
}

}  // namespace
}  // namespace stow
