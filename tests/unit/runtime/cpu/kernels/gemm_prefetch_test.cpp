#include "stowage/runtime/cpu/kernels/gemm_prefetch.h"

#include <gtest/gtest.h>

#include <set>

namespace stow::testing {
namespace {

using cpu::GemmPrefetcher;
using cpu::GemmDim;
using cpu::GemmDims;
using cpu::GemmFetch;

constexpr int64_t kLine = 64;

// Elements [first, first + n) by [k, k + depth) of an operand, so many bytes apart each way.
struct Block {
  int64_t bytes, outer_step, k_step;
  int64_t first, n, k, depth;
};
const Block kBlocks[] = {
    {4, 512, 4, 2, 5, 16, 96},   // rows of adjacent k
    {4, 4, 512, 32, 64, 3, 7},   // rows of k
    {2, 128, 2, 0, 9, 0, 64},    // two lines a row
    {2, 64, 2, 1, 6, 0, 32},     // one
    {4, 4096, 4, 0, 12, 0, 16},  // one, far apart
    {4, -512, 4, 2, 5, 16, 96},  // backwards
    {4, 512, -64, 2, 5, 1, 4},   // in either direction
    {4, 0, 4, 0, 8, 16, 48},     // broadcast
    {8, 256, 128, 1, 3, 1, 2},   // apart both ways
    {4, 512, 4, 2, 0, 0, 96},    // nothing
    {4, 512, 4, 2, -32, 0, 96},  // less
    {4, 512, 4, 2, 5, 0, 0},     // no k
};

constexpr int64_t kBase = int64_t{1} << 30;  // never read

std::set<int64_t> lines_of(const Block& b) {
  std::set<int64_t> lines;
  for (int64_t i = b.first; i < b.first + b.n; ++i)
    for (int64_t k = b.k; k < b.k + b.depth; ++k)
      lines.insert((kBase + i * b.outer_step + k * b.k_step) / kLine);
  return lines;
}

// All that is fetched in parts of `count` lines.
std::set<int64_t> drain(GemmPrefetcher& prefetcher, int64_t count) {
  std::set<int64_t> lines;
  while (!prefetcher.done()) {
    const int64_t some = std::min(count, prefetcher.left());
    GemmFetch part;
    prefetcher.next(some, nullptr, part);
    for (int64_t i = 0; i < some; ++i) lines.insert(reinterpret_cast<int64_t>(part.next()) / kLine);
  }
  return lines;
}

GemmDims one_dim(int64_t stride) {
  GemmDims dims;
  dims.dims[0] = {1000, stride, 0, 0};
  dims.count = 1;
  dims.extent = 1000;
  return dims;
}

TEST(GemmPrefetcher, WalksOverEveryLineOfABlock) {
  for (const Block& b : kBlocks)
    for (const int64_t count : {1, 3, 7, 1000}) {
      SCOPED_TRACE(::testing::Message() << b.outer_step << " " << b.k_step << " by " << count);
      GemmPrefetcher prefetcher;
      prefetcher.start(reinterpret_cast<const void*>(kBase), b.bytes, &GemmDim::a_stride,
                       one_dim(b.outer_step / b.bytes), b.first, b.n,
                       one_dim(b.k_step / b.bytes), b.k, b.depth);
      EXPECT_GE(prefetcher.left(), int64_t(lines_of(b).size()));
      EXPECT_EQ(drain(prefetcher, count), lines_of(b));
      EXPECT_EQ(prefetcher.left(), 0);
    }
}

TEST(GemmPrefetcher, WalksOverWhatAnOperandIsMadeOf) {
  for (const bool rows_are_k : {false, true}) {
    cpu::GemmPlan::Prologue made;
    made.rows_are_k = rows_are_k;
    GemmPrefetcher prefetcher;
    prefetcher.start(made, 0, 32, 0, 64);
    EXPECT_TRUE(prefetcher.done());  // that is not known
    made.source = {reinterpret_cast<const void*>(kBase), 4, 256};
    prefetcher.start(made, 32, 64, 16, 48);
    const Block block = {4, rows_are_k ? 4 : 1024, rows_are_k ? 1024 : 4, 32, 64, 16, 48};
    EXPECT_EQ(drain(prefetcher, 5), lines_of(block));
  }
}

TEST(GemmPrefetcher, FetchesAShareOfTheRest) {
  GemmPrefetcher prefetcher;
  prefetcher.start(reinterpret_cast<const void*>(kBase), 4, &GemmDim::a_stride, one_dim(64), 0, 25,
                   one_dim(1), 0, 64);
  ASSERT_EQ(prefetcher.left(), 100);
  prefetcher.fetch_rest(10, 10);  // they will fetch all
  EXPECT_EQ(prefetcher.left(), 100);
  prefetcher.fetch_rest(10, 4);  // 60 are too many for 4: a fifth of them
  EXPECT_EQ(prefetcher.left(), 88);
  prefetcher.fetch_rest(10, 0);  // no others come
  EXPECT_TRUE(prefetcher.done());
}

}  // namespace
}  // namespace stow::testing
