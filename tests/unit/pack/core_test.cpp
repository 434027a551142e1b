// Cores, what is fixed above a skyline, and skylines around it.
#include "stowage/pack/core.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "stowage/pack/fixed_buffers.h"
#include "stowage/pack/large.h"
#include "stowage/pack/sections.h"
#include "stowage/pack/skyline_pass.h"
#include "tests/support/pack_instances.h"
#include "tests/support/pack_items.h"

namespace stow::pack {
namespace {

bool overlap(const Item& a, const Item& b) {
  return a.first <= b.last && b.first <= a.last;
}

TEST(Core, HoldsWhatLivesNearThePeakAndItsOverlaps) {
  for (const Nature& nature : all_natures()) {
    SCOPED_TRACE(nature.name);
    const Sections sections = cut_sections(nature.make(400, 2));
    const std::vector<Item> items = items_of(sections);
    const int64_t least = sections.largest_live / 10 * 9;
    const Core core = core_of(items, sections.live, least);
    size_t k = 0;
    for (int32_t i = 0; i < static_cast<int32_t>(items.size()); ++i) {
      const bool inside = std::any_of(sections.live.begin() + items[i].first,
                                      sections.live.begin() + items[i].last + 1,
                                      [&](int64_t live) { return live >= least; });
      ASSERT_EQ(inside, k < core.ids.size() && core.ids[k] == i);
      k += inside;
    }
    ASSERT_EQ(core.items.size(), core.ids.size());
    int32_t n_sections = 0;
    for (size_t a = 0; a < core.items.size(); ++a) {
      ASSERT_LE(core.items[a].first, core.items[a].last);
      n_sections = std::max(n_sections, core.items[a].last + 1);
      for (size_t b = 0; b < a; ++b)
        ASSERT_EQ(overlap(core.items[a], core.items[b]),
                  overlap(items[core.ids[a]], items[core.ids[b]]));
    }
    EXPECT_EQ(core.n_sections, n_sections);
    EXPECT_EQ(core_of(items, sections.live, 0).items.size(), items.size());
  }
}

TEST(FixedBuffers, TheLowestIsThatOfALinearSearch) {
  std::mt19937_64 random(1);
  const int32_t n_sections = 37;
  for (int round = 0; round < 20; ++round) {
    // Fixed are those of every second row of boxes, so that they do not overlap.
    std::vector<Item> items;
    std::vector<int64_t> offsets;
    for (int64_t row = 0; row < 12; ++row) {
      for (int32_t at = 0; at < n_sections;) {
        const int32_t last = std::min<int32_t>(n_sections - 1, at + random() % 9);
        items.push_back({10, at, last});
        offsets.push_back(random() % 3 == 0 ? FixedBuffers::kFree : row * 10);
        at = last + 1;
      }
    }
    FixedBuffers fixed_buffers(n_sections);
    fixed_buffers.build(items, offsets);
    std::vector<uint8_t> passed(items.size());
    const auto search = [&](int32_t first, int32_t last) {
      int64_t lowest = INT64_MAX;
      for (size_t i = 0; i < items.size(); ++i)
        if (offsets[i] != FixedBuffers::kFree && !passed[i] && overlap(items[i], {0, first, last}))
          lowest = std::min(lowest, offsets[i]);
      return lowest;
    };
    for (;;) {
      for (int k = 0; k < 10; ++k) {
        const auto first = static_cast<int32_t>(random() % n_sections);
        const auto last = static_cast<int32_t>(first + random() % (n_sections - first));
        const int32_t wall = fixed_buffers.lowest(first, last);
        ASSERT_EQ(wall < 0 ? INT64_MAX : offsets[wall], search(first, last));
        ASSERT_TRUE(wall < 0 || overlap(items[wall], {0, first, last}));
      }
      const int32_t next = fixed_buffers.lowest(0, n_sections - 1);
      if (next < 0) break;
      fixed_buffers.pass(next);
      passed[next] = 1;
    }
  }
}

// A core keeps its places, the others lie around it, and few find no room.
TEST(SkylinePass, RunsAroundWhatIsFixed) {
  for (const Nature& nature : all_natures()) {
    SCOPED_TRACE(nature.name);
    const Problem problem = nature.make(3000, 4);
    const Sections sections = cut_sections(problem);
    const std::vector<Item> items = items_of(sections);
    const Core core = core_of(items, sections.live, sections.largest_live / 10 * 9);
    const LargeResult packed = pack_large(core.items, core.n_sections, {.passes = 10});
    std::vector<int64_t> fixed(items.size(), FixedBuffers::kFree);
    for (size_t k = 0; k < core.ids.size(); ++k) fixed[core.ids[k]] = packed.offsets[k];
    SkylinePass skyline(items, sections.count());
    ASSERT_TRUE(skyline.run_around(fixed, {.focus = 0.03}, packed.height, {}));
    Problem kept;
    Solution solution{.offsets = {}, .height = skyline.height()};
    const std::vector<int64_t> offsets = skyline.offsets();
    for (size_t i = 0; i < items.size(); ++i) {
      EXPECT_TRUE(fixed[i] == FixedBuffers::kFree || offsets[i] == fixed[i]);
      if (offsets[i] == SkylinePass::kLeftOut) continue;
      kept.buffers.push_back(problem.buffers[i]);
      solution.offsets.push_back(offsets[i]);
    }
    const Result<void> valid = validate(kept, solution);
    EXPECT_TRUE(valid.ok()) << valid.error();
    EXPECT_LE(skyline.height(), packed.height);
    EXPECT_EQ(items.size() - kept.buffers.size(), static_cast<size_t>(skyline.n_left_out()));
    EXPECT_LE(skyline.n_left_out(), 60);
  }
}

}  // namespace
}  // namespace stow::pack
