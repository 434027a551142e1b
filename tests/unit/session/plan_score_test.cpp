// The score by which all stages of the plan search choose: what decides before what.
#include "stowage/session/plan_score.h"

#include <gtest/gtest.h>

#include <array>

#include "stowage/base/inside.h"

namespace stow {
namespace {

// Expects that the first beats the second, and not the other way round.
void expect_order(const PlanScore& a, const PlanScore& b) {
  EXPECT_TRUE(is_better(a, b));
  EXPECT_FALSE(is_better(b, a));
}

TEST(PlanScore, TheSmallerShortfallDecidesFirst) {
  expect_order({.shortfall = 0, .step_s = 9, .device_bytes = 1 << 30},
               {.shortfall = 1, .step_s = 1, .device_bytes = 1});
  expect_order({.shortfall = 5, .step_s = 9, .device_bytes = 100},
               {.shortfall = 6, .step_s = 1, .device_bytes = 1});
  // Of plans that fall short alike, the time does not count.
  expect_order({.shortfall = 5, .step_s = 9, .device_bytes = 1},
               {.shortfall = 5, .step_s = 1, .device_bytes = 2});
}

TEST(PlanScore, ThenTheShorterStep) {
  expect_order({.step_s = 1, .device_bytes = 1 << 30}, {.step_s = 1.001, .device_bytes = 1});
  // As long but for rounding: the bytes decide. So they do where one was not simulated.
  expect_order({.step_s = 1.00005, .device_bytes = 1}, {.step_s = 1, .device_bytes = 2});
  expect_order({.step_s = 9, .device_bytes = 1}, {.step_s = 0, .device_bytes = 2});
}

TEST(PlanScore, ThenFewerBytes) {
  expect_order({.device_bytes = 1}, {.device_bytes = 2});
  expect_order({.device_bytes = kFewDeviceBytes, .other_bytes = 1},
               {.device_bytes = 0, .other_bytes = 2});
  expect_order({.device_bytes = 0, .other_bytes = 2},
               {.device_bytes = kFewDeviceBytes + 1, .other_bytes = 1});
  const PlanScore same = {.step_s = 1, .device_bytes = 1, .other_bytes = 1};
  EXPECT_FALSE(is_better(same, same));
}

TEST(Shortfall, SumsWhatEachKindLacks) {
  const Device::Capacities capacities = {4, 5, 9};
  EXPECT_EQ(shortfall(std::array<int64_t, kNumMemoryKinds>{10, 5, 0}, capacities), 6);
  EXPECT_EQ(shortfall(std::array<int64_t, kNumMemoryKinds>{10, 7, 10}, capacities), 9);
  EXPECT_EQ(shortfall(std::array<int64_t, kNumMemoryKinds>{4, 5, 9}, capacities), 0);
}

TEST(PlanScore, CountsWhatIsAboveEachCapacity) {
  MemoryAnalysis analysis;
  analysis.kinds[0].total_bytes = 10;
  analysis.kinds[1].total_bytes = 20;
  analysis.kinds[2].total_bytes = 40;
  const PlanScore score = score_of(analysis, {7, 100, 39});
  EXPECT_EQ(score.shortfall, 3 + 1);
  EXPECT_EQ(score.device_bytes, 10);
  EXPECT_EQ(score.other_bytes, 60);
  EXPECT_EQ(score.step_s, 0);
}

}  // namespace
}  // namespace stow
