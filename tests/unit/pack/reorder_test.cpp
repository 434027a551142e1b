// Packings that follow their order: after any moves they are those of first fit.
#include "stowage/pack/reorder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "stowage/base/inside.h"
#include "stowage/pack/placer.h"
#include "tests/support/pack_instances.h"

namespace stow::pack {
namespace {

// Plain values, temporaries of loops, stacks whose slots live one by one, and buffers of no bytes.
Problem random_groups(uint64_t seed, int n) {
  std::mt19937_64 random(seed);
  const auto pick = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  Problem problem;
  for (int b = 0; b < n; ++b) {
    Buffer buffer;
    buffer.alignment = int64_t{1} << pick(0, 6);
    const int64_t n_rects = b % 3 == 0 ? pick(0, 6) : 1, start = pick(0, 90), life = pick(1, 20),
                  size = pick(0, 100), slot = b % 2 == 0 ? size : 0;
    for (int64_t i = 0; i < n_rects; ++i)
      buffer.rects.push_back(
          {i * slot + (b % 5 == 0 ? 32 : 0), size, start + 21 * i, start + 21 * i + life});
    problem.buffers.push_back(buffer);
  }
  return problem;
}

std::vector<int64_t> alignments_of(const Problem& problem) {
  std::vector<int64_t> alignments;
  for (const Buffer& b : problem.buffers) alignments.push_back(b.alignment);
  return alignments;
}

std::vector<int32_t> with_bytes(const Sections& sections) {
  std::vector<int32_t> order;
  for (int32_t b = 0; b + 1 < static_cast<int32_t>(sections.begin.size()); ++b)
    if (sections.begin[b] < sections.begin[b + 1]) order.push_back(b);
  return order;
}

void expect_first_fit(const Problem& problem, uint64_t seed) {
  const Sections sections = cut_sections(problem);
  Placer placer(problem, sections);
  Reorder packing(sections, alignments_of(problem));
  packing.start(with_bytes(sections));
  std::mt19937_64 random(seed);
  const size_t n = packing.order().size();
  ASSERT_GT(n, 0u);
  int64_t limit = INT64_MAX;
  for (int round = 0; round < 30; ++round) {
    const size_t placed = packing.place(limit);
    ASSERT_EQ(placed, placer.run(packing.order(), Fit::kFirst, limit));
    if (placed == n) {
      EXPECT_EQ(packing.offsets(), placer.offsets());
      EXPECT_EQ(packing.height(), placer.height());
      EXPECT_TRUE(validate(problem, {packing.offsets(), packing.height()}).ok());
    }
    // Now and then a limit that is too low, and any again.
    limit = round % 4 == 0 ? packing.height() - 1 : round % 4 == 2 ? INT64_MAX : limit;
    size_t from = placed < n ? placed : random() % n;
    for (int moves = 1 + round % 3; moves > 0; --moves, from = random() % n)
      packing.move(from, random() % (from + 1));
  }
}

TEST(Reorder, IsFirstFitAfterAnyMoves) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    expect_first_fit(random_groups(seed, 5 + static_cast<int>(seed) * 4), seed);
    expect_first_fit(all_natures()[seed % all_natures().size()].make(150, seed), seed);
  }
}

TEST(Reorder, CountsOverlaps) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Sections sections = cut_sections(random_groups(seed, 60));
    int64_t n = 0;
    for (size_t i = 0; i < sections.rects.size(); ++i)
      for (size_t k = 0; k < i; ++k)
        n += sections.rects[i].first <= sections.rects[k].last &&
             sections.rects[k].first <= sections.rects[i].last;
    EXPECT_EQ(count_overlaps(sections), n);
  }
}

}  // namespace
}  // namespace stow::pack
