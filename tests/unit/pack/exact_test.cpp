// Exact packing against brute force over all offsets, and on instances without a byte to spare.
#include "stowage/pack/exact.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace stow::pack {
namespace {

Buffer plain(int64_t lower, int64_t upper, int64_t size) {
  return {{{0, size, lower, upper}}, 1};
}

// Whether buffers from `at` on can be placed below `capacity`, beside those before.
bool fits(const Problem& problem, std::vector<int64_t>& offsets, size_t at, int64_t capacity) {
  if (at == problem.buffers.size()) return true;
  const Rect& r = problem.buffers[at].rects[0];
  for (offsets[at] = 0; offsets[at] + r.size <= capacity; ++offsets[at]) {
    bool free = true;
    for (size_t b = 0; b < at && free; ++b) {
      const Rect& other = problem.buffers[b].rects[0];
      free = other.upper <= r.lower || r.upper <= other.lower ||
             offsets[b] + other.size <= offsets[at] || offsets[at] + r.size <= offsets[b];
    }
    if (free && fits(problem, offsets, at + 1, capacity)) return true;
  }
  return false;
}

int64_t least_height(const Problem& problem) {
  std::vector<int64_t> offsets(problem.buffers.size());
  int64_t height = lower_bound(problem);
  while (!fits(problem, offsets, 0, height)) ++height;
  return height;
}

// A rectangle of time x bytes cut at random into n: nothing is to spare anywhere.
void cut(std::mt19937_64& random, int n, Rect area, Problem& out) {
  if (n == 1 || (area.upper - area.lower < 2 && area.size < 2)) {
    out.buffers.push_back(plain(area.lower, area.upper, area.size));
    return;
  }
  const bool in_time = area.size < 2 || (area.upper - area.lower >= 2 && random() % 2 == 0);
  const int left = 1 + static_cast<int>(random() % static_cast<uint64_t>(n - 1));
  Rect a = area, b = area;
  if (in_time) {
    a.upper = b.lower = area.lower + 1 + random() % (area.upper - area.lower - 1);
  } else {
    a.size = 1 + random() % (area.size - 1);
    b.size = area.size - a.size;
  }
  cut(random, left, a, out);
  cut(random, n - left, b, out);
}

// At every step some buffers end and others of the same total begin: the live sum is `load` all
// the time, and nothing says that a packing within it exists.
Problem full_load(std::mt19937_64& random, int64_t load, int64_t steps) {
  std::vector<Rect> live{{0, load, 0, 0}}, done;
  for (int64_t t = 0; t <= steps; ++t) {
    int64_t freed = 0;
    std::vector<Rect> next;
    for (Rect& r : live) {
      if (t < steps && random() % 2 == 0) {
        next.push_back(r);
      } else {
        freed += r.size;
        r.upper = t;
        if (t > r.lower) done.push_back(r);
      }
    }
    for (live = next; freed > 0 && t < steps; freed -= live.back().size)
      live.push_back({0, 1 + static_cast<int64_t>(random() % std::min<uint64_t>(freed, 3)), t, 0});
  }
  Problem problem;
  for (const Rect& r : done) problem.buffers.push_back({{r}, 1});
  return problem;
}

TEST(PackExact, AgreesWithBruteForce) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 300; ++round) {
    const Problem problem = full_load(random, 4 + round % 3, 3 + round % 4);
    const int64_t least = least_height(problem);
    const ExactResult found = pack_exact(problem).value();
    EXPECT_TRUE(validate(problem, found.solution).ok());
    EXPECT_EQ(found.verdict, Verdict::kOptimal);
    EXPECT_EQ(found.solution.height, least);
    EXPECT_EQ(found.lower_bound, least);
    EXPECT_EQ(pack_exact(problem, {.capacity = least}).value().verdict, Verdict::kReached);
    EXPECT_EQ(pack_exact(problem, {.capacity = least - 1}).value().verdict, Verdict::kImpossible);
  }
}

// Found among a hundred thousand random ones: the live sum is never above 8, and 9 are needed.
TEST(PackExact, ProvesWhatTheLiveSumDoesNot) {
  const std::vector<Rect> instances[] = {
      {{0, 3, 0, 2},
       {0, 4, 0, 3},
       {0, 1, 2, 4},
       {0, 2, 3, 4},
       {0, 1, 0, 5},
       {0, 2, 2, 5},
       {0, 2, 3, 5},
       {0, 3, 4, 6},
       {0, 4, 5, 6},
       {0, 1, 5, 6}},
      {{0, 4, 0, 1},
       {0, 4, 0, 2},
       {0, 1, 1, 3},
       {0, 1, 2, 3},
       {0, 1, 2, 3},
       {0, 2, 2, 4},
       {0, 3, 1, 5},
       {0, 1, 4, 5},
       {0, 1, 4, 5},
       {0, 3, 3, 6},
       {0, 5, 5, 6}},
      {{0, 4, 0, 1},
       {0, 1, 0, 1},
       {0, 1, 0, 2},
       {0, 3, 1, 4},
       {0, 1, 0, 5},
       {0, 2, 4, 5},
       {0, 2, 1, 6},
       {0, 3, 5, 6},
       {0, 1, 0, 8},
       {0, 1, 2, 8},
       {0, 1, 4, 8},
       {0, 5, 6, 8}},
  };
  for (const std::vector<Rect>& rects : instances) {
    Problem problem;
    for (const Rect& r : rects) problem.buffers.push_back({{r}, 1});
    EXPECT_EQ(lower_bound(problem), 8);
    EXPECT_EQ(least_height(problem), 9);
    const ExactResult least = pack_exact(problem).value();
    EXPECT_EQ(least.verdict, Verdict::kOptimal);
    EXPECT_EQ(least.solution.height, 9);
    EXPECT_EQ(least.lower_bound, 9);
    EXPECT_TRUE(validate(problem, least.solution).ok());
    const ExactResult tight = pack_exact(problem, {.capacity = 8}).value();
    EXPECT_EQ(tight.verdict, Verdict::kImpossible);
    EXPECT_EQ(tight.lower_bound, 9);
  }
}

TEST(PackExact, ReachesTheBoundOfTilings) {
  std::mt19937_64 random(11);
  for (const int n : {8, 20, 40, 60}) {
    for (int round = 0; round < 3; ++round) {
      Problem problem;
      cut(random, n, {0, 3000, 0, 60}, problem);
      std::shuffle(problem.buffers.begin(), problem.buffers.end(), random);
      const ExactResult found = pack_exact(problem, {.capacity = 3000}).value();
      const Result<void> valid = validate(problem, found.solution);
      EXPECT_TRUE(valid.ok()) << valid.error();
      EXPECT_EQ(found.verdict, Verdict::kReached) << n << " buffers, round " << round;
      EXPECT_EQ(found.solution.height, 3000);
    }
  }
}

TEST(PackExact, EdgesOfTheProblem) {
  const ExactResult none = pack_exact({}).value();
  EXPECT_EQ(none.verdict, Verdict::kOptimal);
  EXPECT_EQ(none.solution.height, 0);
  const Problem empties{{Buffer{}, plain(0, 4, 0), plain(2, 2, 9), plain(0, 4, 3)}};
  const ExactResult found = pack_exact(empties, {.capacity = 3}).value();
  EXPECT_EQ(found.verdict, Verdict::kReached);
  EXPECT_TRUE(validate(empties, found.solution).ok());
  EXPECT_EQ(pack_exact(empties, {.capacity = 0}).value().verdict, Verdict::kImpossible);
  // Without time the answer is still a packing.
  const Problem three{{plain(0, 2, 4), plain(1, 3, 4), plain(2, 4, 4)}};
  EXPECT_TRUE(validate(three, pack_exact(three, {.time_limit_s = 0}).value().solution).ok());
}

TEST(PackExact, KeepsAlignmentOrRefuses) {
  Problem problem{{plain(0, 2, 128), plain(1, 3, 64), plain(2, 4, 192)}};
  for (Buffer& b : problem.buffers) b.alignment = 64;
  const ExactResult found = pack_exact(problem).value();
  EXPECT_TRUE(validate(problem, found.solution).ok());
  EXPECT_EQ(found.solution.height, 256);
  problem.buffers[1].rects[0].size = 65;
  EXPECT_THAT(pack_exact(problem).error(),
              testing::HasSubstr("buffer 1: expected a multiple of the largest alignment 64 as "
                                 "size, got 65"));
  problem.buffers[1].rects = {{0, 64, 0, 1}, {0, 64, 2, 3}};
  EXPECT_THAT(pack_exact(problem).error(), testing::HasSubstr("buffer 1: exact packing takes"));
}

}  // namespace
}  // namespace stow::pack
