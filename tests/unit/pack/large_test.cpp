// Packing by rising skylines: valid for every nature, close to the bound, the same twice.
#include "stowage/pack/large.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "stowage/pack/eject.h"
#include "stowage/pack/exact.h"
#include "stowage/pack/sections.h"
#include "stowage/pack/skyline_pass.h"
#include "stowage/pack/staged_pass.h"
#include "tests/support/pack_instances.h"
#include "tests/support/pack_items.h"

namespace stow::pack {
namespace {

double gap_percent(int64_t height, int64_t bound) {
  return 100.0 * static_cast<double>(height - bound) / static_cast<double>(bound);
}

TEST(PackLarge, EveryNatureIsValidAndMorePassesAreNeverWorse) {
  for (const Nature& nature : all_natures()) {
    SCOPED_TRACE(nature.name);
    for (const int n : {1, 7, 300, 1500}) {
      const Problem problem = nature.make(n, 5);
      ASSERT_TRUE(check_problem(problem).ok());
      const Sections sections = cut_sections(problem);
      const std::vector<Item> items = items_of(sections);
      const LargeResult first = pack_large(items, sections.count(), {.passes = 1});
      const LargeResult more = pack_large(items, sections.count(), {.passes = 15});
      const LargeResult again = pack_large(items, sections.count(), {.passes = 15});
      const Result<void> valid = validate(problem, {more.offsets, more.height});
      EXPECT_TRUE(valid.ok()) << valid.error();
      EXPECT_TRUE(validate(problem, {first.offsets, first.height}).ok());
      EXPECT_LE(more.height, first.height);
      EXPECT_EQ(more.offsets, again.offsets);
    }
  }
}

// Where gaps can hardly be avoided, or the least height is a puzzle's, there is no promise.
TEST(PackLarge, OrdinaryNaturesComeWithinHalfAPerCent) {
  for (const std::string_view name :
       {"uniform-sparse", "two-ends", "heavy-tails", "training", "inference", "nested-noisy"}) {
    const auto nature = std::find_if(all_natures().begin(), all_natures().end(),
                                     [&](const Nature& n) { return n.name == name; });
    ASSERT_NE(nature, all_natures().end()) << name;
    const Problem problem = nature->make(5000, 3);
    const Sections sections = cut_sections(problem);
    const LargeResult found = pack_large(items_of(sections), sections.count(), {.passes = 30});
    EXPECT_LE(gap_percent(found.height, sections.largest_live), 0.5) << name;
  }
}

TEST(PackLarge, NothingToPack) {
  EXPECT_TRUE(pack_large({}, 0, {}).offsets.empty());
}

TEST(PackLarge, StopsAtTheTargetAndWhenAsked) {
  const Problem problem = all_natures()[1].make(2000, 1);
  const Sections sections = cut_sections(problem);
  const std::vector<Item> items = items_of(sections);
  const LargeResult first = pack_large(items, sections.count(), {.passes = 1});
  const LargeResult enough = pack_large(items, sections.count(), {.target = first.height});
  EXPECT_EQ(enough.offsets, first.offsets);
  const LargeResult stopped = pack_large(items, sections.count(), {.stop = [] { return true; }});
  EXPECT_EQ(stopped.offsets, first.offsets);
}

TEST(PackLarge, SumsNearTheLargestNumbers) {
  const int64_t huge = (int64_t{1} << 60) - 8;
  const std::vector<Item> items = {{huge, 0, 2}, {huge, 1, 3}, {huge, 2, 4}, {huge - 1, 0, 0}};
  const LargeResult found = pack_large(items, 5, {.passes = 20});
  EXPECT_EQ(found.height, 3 * huge);
}

// What does not fit below the capacity is left out, and what was placed is a packing below it.
TEST(SkylinePass, LeavesOutWhatHasNoRoom) {
  const Problem problem = all_natures()[2].make(2000, 1);
  const Sections sections = cut_sections(problem);
  const std::vector<Item> items = items_of(sections);
  const int64_t capacity = sections.largest_live - sections.largest_live / 10;
  SkylinePass skyline(items, sections.count());
  ASSERT_TRUE(skyline.run({}, capacity, {}));
  EXPECT_GT(skyline.n_left_out(), 0);
  EXPECT_LE(skyline.height(), capacity);
  Problem kept;
  Solution solution;
  int32_t left_out = 0;
  const std::vector<int64_t> offsets = skyline.offsets();
  for (size_t i = 0; i < items.size(); ++i) {
    if (offsets[i] == SkylinePass::kLeftOut) {
      ++left_out;
      continue;
    }
    kept.buffers.push_back(problem.buffers[i]);
    solution.offsets.push_back(offsets[i]);
  }
  solution.height = skyline.height();
  EXPECT_EQ(left_out, skyline.n_left_out());
  EXPECT_TRUE(validate(kept, solution).ok()) << validate(kept, solution).error();
}

// Choosing at each stage leaves out a tenth of what passes do, where both nearly fit.
TEST(StagedPass, LeavesOutLessThanPasses) {
  const auto nature = std::find_if(all_natures().begin(), all_natures().end(), [](const Nature& n) {
    return n.name == std::string_view("full-heap-large");
  });
  ASSERT_NE(nature, all_natures().end());
  for (const uint64_t seed : {1, 2}) {
    const Problem problem = nature->make(4000, seed);
    const Sections sections = cut_sections(problem);
    const std::vector<Item> items = items_of(sections);
    const int64_t capacity = sections.largest_live + sections.largest_live / 25;
    SkylinePass skyline(items, sections.count());
    SkylineStrategy strategy{.focus = 0.03, .noise = 0.005, .tolerance = 0.001, .levelling = 0.004};
    const auto draw = [&] {
      ++strategy.seed;
      return strategy;
    };
    double of_passes = 0, of_staged = 0;
    for (int i = 0; i < 4; ++i) {
      ASSERT_TRUE(skyline.run(draw(), capacity, {}));
      of_passes += skyline.area_left_out();
      ASSERT_TRUE(staged_pass(skyline, {.capacity = capacity, .n_stages = 50, .draw = draw}));
      of_staged += skyline.area_left_out();
    }
    EXPECT_LT(of_staged, of_passes / 10);
    EXPECT_LE(skyline.height(), capacity);
    EXPECT_FALSE(
        staged_pass(skyline, {.capacity = capacity, .draw = draw, .stop = [] { return true; }}));
    EXPECT_FALSE(
        staged_pass(skyline, {.capacity = capacity / 2, .most_left_out = 10, .draw = draw}));
  }
}

// Weighing lengths where it is tight, giving up narrow gaps and levelling leave out less than half.
TEST(SkylinePass, WastesWhereThereIsRoom) {
  const Problem problem = all_natures()[2].make(20'000, 3);
  const Sections sections = cut_sections(problem);
  const std::vector<Item> items = items_of(sections);
  SkylinePass skyline(items, sections.count());
  ASSERT_TRUE(skyline.run({.focus = 1e9}, sections.largest_live, {}));
  const double least = skyline.area_left_out() / 2;
  const SkylineStrategy strategy{.focus = 0.02, .tolerance = 0.002, .levelling = 0.006};
  ASSERT_TRUE(skyline.run(strategy, sections.largest_live, {}));
  EXPECT_LT(skyline.area_left_out(), least);
  EXPECT_FALSE(skyline.run({.focus = 1e9}, sections.largest_live, {}, least));
}

// What a skyline leaves out of a packing that exists is forced in.
TEST(Ejector, FindsRoomForWhatWasLeftOut) {
  const auto nature = std::find_if(all_natures().begin(), all_natures().end(),
                                   [](const Nature& n) { return n.name == "unrolled"; });
  ASSERT_NE(nature, all_natures().end());
  const Problem problem = nature->make(20'000, 3);
  const Sections sections = cut_sections(problem);
  const std::vector<Item> items = items_of(sections);
  const int64_t capacity = sections.largest_live + sections.largest_live / 100;
  SkylinePass skyline(items, sections.count());
  ASSERT_TRUE(skyline.run({.size_power = 0.3, .tolerance = 0.02}, capacity, {}));
  ASSERT_GT(skyline.n_left_out(), 0);
  Ejector ejector(items, sections.count());
  EXPECT_FALSE(ejector.run(skyline.offsets(), capacity, {.growth = 1.1}, 1, {}));
  EXPECT_GT(ejector.n_left_out(), 0u);
  ASSERT_TRUE(ejector.run(skyline.offsets(), capacity, {.growth = 1.1}, 1'000'000'000, {}));
  int64_t height = 0;
  for (size_t i = 0; i < items.size(); ++i)
    height = std::max(height, ejector.offsets()[i] + items[i].size);
  EXPECT_LE(height, capacity);
  EXPECT_TRUE(validate(problem, {ejector.offsets(), height}).ok());
}

// A rectangle in five, which no straight cut need part.
TEST(PackExact, CutRectangleIsSolved) {
  const Problem problem = cut_rectangle(5, 1000, true, 1);
  EXPECT_EQ(lower_bound(problem), 1000);
  const Result<ExactResult> packed = pack_exact(problem, {.capacity = 1000});
  ASSERT_TRUE(packed.ok());
  EXPECT_EQ(packed->verdict, Verdict::kReached);
}

TEST(PackLarge, TheCommandsSolverUsesIt) {
  const Problem problem = all_natures()[1].make(20'000, 1);
  const Result<ExactResult> packed = pack_exact(problem, {.time_limit_s = 0});
  ASSERT_TRUE(packed.ok());
  EXPECT_TRUE(validate(problem, packed->solution).ok());
  EXPECT_LE(gap_percent(packed->solution.height, packed->lower_bound), 5);
}

}  // namespace
}  // namespace stow::pack
