// Greedy packing: always valid, rigid groups interleave, the same twice.
#include "stowage/base/inside.h"
#include "stowage/pack/heuristics.h"

#include <gtest/gtest.h>

#include <random>

namespace stow::pack {
namespace {

Solution checked(const Problem& problem, const Options& options = {}) {
  EXPECT_TRUE(check_problem(problem).ok());
  const Solution solution = pack_greedy(problem, options);
  const Result<void> valid = validate(problem, solution);
  EXPECT_TRUE(valid.ok()) << valid.error();
  EXPECT_GE(solution.height, lower_bound(problem));
  return solution;
}

// Plain values, loop temporaries and stacks.
Problem random_problem(uint64_t seed, int n) {
  std::mt19937_64 random(seed);
  const auto pick = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  Problem problem;
  for (int b = 0; b < n; ++b) {
    Buffer buffer;
    buffer.alignment = int64_t{1} << pick(0, 7);
    const int64_t kind = pick(0, 9), size = pick(0, 40) * 32, rects = pick(0, 12);
    const int64_t start = pick(0, 100), life = pick(1, 12);
    if (kind < 6) buffer.rects.push_back({0, size, start, start + pick(0, 40)});
    for (int64_t i = 0; kind >= 6 && i < rects; ++i)
      buffer.rects.push_back(
          {kind < 8 ? 0 : i * size, size, start + i * 12, start + i * 12 + life});
    problem.buffers.push_back(buffer);
  }
  return problem;
}

TEST(PackGreedy, EmptyThings) {
  EXPECT_EQ(checked({}).height, 0);
  const Problem problem{{Buffer{}, Buffer{{{0, 0, 0, 9}}}, Buffer{{{0, 8, 4, 4}}}}};
  EXPECT_EQ(checked(problem).height, 0);
}

TEST(PackGreedy, RandomGroupsAreValidAndTheSameTwice) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const Problem problem = random_problem(seed, 1 + static_cast<int>(seed) * 3);
    const Options options{.work = 500'000};
    const Solution a = checked(problem, options), b = checked(problem, options);
    EXPECT_EQ(a.offsets, b.offsets);
    EXPECT_LE(a.height, checked(problem, {.work = 0}).height);
  }
}

TEST(PackGreedy, AlignmentIsKept) {
  const Problem problem{
      {Buffer{{{0, 10, 0, 9}}, 1}, Buffer{{{0, 10, 0, 9}}, 64}, Buffer{{{0, 10, 0, 9}}, 64}}};
  EXPECT_EQ(checked(problem).height, 74);
}

// Forward fills slot i at time i; backward, from the last slot down, drains it and fills the
// gradient's slot: 12 slots of either kind, never more than 13 live.
TEST(PackGreedy, GradientStackLiesOverTheResidualsAlreadyDead) {
  const int64_t layers = 12, slot = 1024;
  Buffer residuals, gradients;
  for (int64_t i = 0; i < layers; ++i) {
    const int64_t backward = 2 * layers - 1 - i;
    residuals.rects.push_back({i * slot, slot, i, backward + 1});
    gradients.rects.push_back({i * slot, slot, backward, 2 * layers});
  }
  const Problem problem{{residuals, gradients}};
  EXPECT_EQ(lower_bound(problem), (layers + 1) * slot);
  EXPECT_EQ(checked(problem).height, (layers + 1) * slot);
}

// A temporary that stands in every iteration of a loop shares its place with another that stands
// in the gaps between.
TEST(PackGreedy, LoopTemporariesShareTheGaps) {
  Buffer even, odd;
  for (int64_t i = 0; i < 126; ++i) {
    even.rects.push_back({0, 4096, 4 * i, 4 * i + 2});
    odd.rects.push_back({0, 4096, 4 * i + 2, 4 * i + 4});
  }
  EXPECT_EQ(checked({{even, odd}}).height, 4096);
}

TEST(PackGreedy, RepairsReachTheBoundWhereOnePassDoesNot) {
  int better = 0;
  for (uint64_t seed = 100; seed < 110; ++seed) {
    const Problem problem = random_problem(seed, 60);
    better += checked(problem, {.work = 2'000'000}).height < checked(problem, {.work = 0}).height;
  }
  EXPECT_GE(better, 5);
}

// How often the search asks whether to stop tells how long it goes on.
TEST(PackGreedy, PatienceEndsReorderingThatGainsNothing) {
  int n_shorter = 0;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    const Problem problem = random_problem(seed, 40);
    int64_t asked = 0;
    Options options{.work = 6'000'000, .stop = [&] { return ++asked < 0; }};
    const auto steps = [&](int64_t patience, int64_t& height) {
      options.patience = patience;
      asked = 0;
      height = checked(problem, options).height;
      return asked;
    };
    int64_t all, patient, hasty;
    const int64_t n_all = steps(0, all), n_patient = steps(20'000, patient),
                  n_hasty = steps(1, hasty);
    // Late gains of such dense problems are small, those of plans rarer still (docs/packing.md).
    EXPECT_GE(patient, all);
    EXPECT_LE(patient, all + all / 64);
    EXPECT_GE(hasty, patient);
    EXPECT_LE(n_patient, n_all);
    n_shorter += all > lower_bound(problem) && n_hasty < n_patient && n_patient < n_all;
  }
  EXPECT_GT(n_shorter, 0);
}

TEST(PackGreedy, StopsWhenAsked) {
  const Problem problem = random_problem(3, 80);
  int asked = 0;
  const Solution stopped =
      checked(problem, {.work = INT64_MAX, .stop = [&] { return ++asked == 3; }});
  EXPECT_EQ(asked, 3);
  const Solution reached = checked(problem, {.work = INT64_MAX, .target = stopped.height});
  EXPECT_LE(reached.height, stopped.height);
}

}  // namespace
}  // namespace stow::pack
