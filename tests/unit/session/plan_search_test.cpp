// Plans of one program for several capacities: within them, and no slower for more memory. Bounds
// of the search's work are those of plan_search_limits_test.cpp, random programs those of the fuzz
// tests.
#include "stowage/session/plan_search.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/runtime/null/built_in_devices.h"
#include "stowage/runtime/null/simulate.h"
#include "stowage/stowage.h"
#include "tests/support/realized.h"
#include "tests/unit/session/offloaded_step_kit.h"

namespace stow {
namespace {

using testing::has_moves_ahead;
constexpr MemoryKind kHost = MemoryKind::kPinnedHost;
// A step may take so much longer than one for less memory: a search ends where a step is within 3 %
// of its busiest stream (hides_well), which has some launches more or fewer by how work is tiled.
constexpr double kAsFast = 1.05;

Graph offloaded_step() { return testing::realized(testing::offloaded_step_graph(6, 64, 32)); }

Planned planned_within(const Graph& graph, int64_t capacity, CompileOptions options = {}) {
  options.capacities[0] = capacity;
  return search_plan(graph, options, *host_target(1)).planned;
}
int64_t device_bytes(const Planned& planned) { return planned.plan.analysis.device().total_bytes; }

double step_s(const Schedule& schedule) { return simulate(schedule, *common_cpu()).step_s; }

TEST(PlanSearch, MoreMemoryIsKeptToAndTakesNoLonger) {
  const Graph graph = offloaded_step();
  const int64_t least = device_bytes(planned_within(graph, 1));
  std::optional<Schedule> least_memory, fastest;
  for (const double room : {1.0, 1.1, 1.4, 4.0}) {
    const auto capacity = static_cast<int64_t>(room * static_cast<double>(least));
    const Planned planned = planned_within(graph, capacity);
    EXPECT_LE(device_bytes(planned), capacity) << room;
    if (!fastest) {
      least_memory = fastest = planned.schedule;
      continue;
    }
    const double time = step_s(planned.schedule) / step_s(*fastest);
    EXPECT_LE(time, kAsFast) << room;
    if (time < 1) fastest = planned.schedule;
  }
  EXPECT_LT(step_s(*fastest), step_s(*least_memory)) << "memory hides moves";
}

TEST(PlanSearch, WhatDoesNotFitNeedsTheLeastThatIsKnown) {
  const Graph graph = offloaded_step();
  const auto least = static_cast<double>(device_bytes(planned_within(graph, 1)));
  const Planned planned = planned_within(graph, static_cast<int64_t>(0.97 * least));
  EXPECT_LE(static_cast<double>(device_bytes(planned)), (1 + kGoodGap) * least);
}

TEST(PlanSearch, NoMoveRunsAheadUnlessItMay) {
  const Graph graph = offloaded_step();
  const int64_t capacity = 1 << 20;
  EXPECT_TRUE(has_moves_ahead(planned_within(graph, capacity).schedule));
  CompileOptions options;
  options.transfers_ahead = 0;
  EXPECT_FALSE(has_moves_ahead(planned_within(graph, capacity, options).schedule));
}

// An array of the host that is larger than the device, and smaller than a tile of a device without
// bound.
TEST(PlanSearch, FindsTilesThatFit) {
  const auto f = [](const Array& x) {
    return device_put(tanh(device_put(x, MemoryKind::kDevice)), kHost);
  };
  const ArrayType type{DType::kF32, Shape{1 << 17}, kHost};
  const Graph graph = testing::realized(jit(f).lower(Array::abstract(type)).graph());
  const int64_t capacity = type.bytes() / 2;
  EXPECT_GT(device_bytes(planned_within(graph, Device::unlimited_bytes())), capacity);
  EXPECT_LE(device_bytes(planned_within(graph, capacity)), capacity);
}

}  // namespace
}  // namespace stow
