// The layout of a graph: bounds that hold, and the order of the fewest device bytes.
#include "stowage/session/layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/schedule_printer.h"
#include "stowage/session/plan_score.h"
#include "stowage/session/plan_search.h"
#include "stowage/stowage.h"
#include "tests/support/realized.h"

namespace stow {
namespace {

using Arrays = std::vector<Array>;

Device::Capacities device_of(int64_t bytes) {
  Device::Capacities capacities;
  capacities.fill(Device::unlimited_bytes());
  capacities[0] = bytes;
  return capacities;
}

// A product that is kept beside a larger one as written; the other order keeps a few columns.
Graph two_products() {
  const auto f = [](const Arrays& small, const Arrays& large) {
    const Array kept = matmul(matmul(small[0], small[1]), small[2]);      // [256, 240]
    const Array columns = matmul(matmul(large[0], large[1]), large[2]);  // [512, 2]
    return matmul(kept, matmul(small[3], columns));
  };
  const auto a = [](int64_t rows, int64_t columns) { return Array::abstract({rows, columns}); };
  return testing::realized(jit(f)
                               .lower(Arrays{a(256, 8), a(8, 256), a(256, 240), a(240, 512)},
                                      Arrays{a(512, 8), a(8, 512), a(512, 2)})
                               .graph());
}

TEST(OrderedGraph, ItsLayoutIsOfTheOrderOfTheFewestDeviceBytes) {
  const TargetPtr target = host_target(1);
  const Graph graph = two_products();
  const LowerOptions options = lowering_options({}, *target);
  int64_t least = std::numeric_limits<int64_t>::max(), as_written = 0;
  OrderedGraph ordered(graph, options);
  ASSERT_EQ(ordered.schedules().size(), static_cast<size_t>(kNumOrderStrategies));
  for (const Schedule& schedule : ordered.schedules()) {
    const int64_t bytes = make_plan(schedule, kFinalEffort).analysis.device().total_bytes;
    if (as_written == 0) as_written = bytes;  // the first strategy is the program's
    least = std::min(least, bytes);
  }
  ASSERT_LT(least, as_written);
  const int64_t bound = ordered.least_device_bytes();
  EXPECT_LE(bound, least);
  const Graph lowered = ordered.graph();
  LowerOptions chosen = options;
  const Planned planned =
      std::move(ordered).lay_out(device_of(Device::unlimited_bytes()), chosen);
  const auto total = static_cast<double>(planned.plan.analysis.device().total_bytes);
  EXPECT_LE((1 - kGoodGap) * total, static_cast<double>(least));
  EXPECT_EQ(print(lower(lowered, chosen)), print(planned.schedule)) << "its options are returned";
}

TEST(OrderedGraph, NoLayoutFallsShortByLessThanItsBound) {
  const TargetPtr target = host_target(1);
  const Graph graph = two_products();
  const LowerOptions options = lowering_options({}, *target);
  const int64_t least = OrderedGraph(graph, options).least_device_bytes();
  for (const int64_t capacity : {int64_t{1}, least / 2, 2 * least}) {
    const Device::Capacities capacities = device_of(capacity);
    OrderedGraph ordered(graph, options);
    const int64_t bound = ordered.least_shortfall(capacities);
    EXPECT_EQ(bound, std::max<int64_t>(least - capacity, 0)) << capacity;
    LowerOptions chosen = options;
    const Planned planned = std::move(ordered).lay_out(capacities, chosen);
    EXPECT_GE(score_of(planned.plan.analysis, capacities).shortfall, bound) << capacity;
  }
}

TEST(OrderedGraph, WithoutReuseTheOrderDoesNotMatter) {
  const TargetPtr target = host_target(1);
  const Graph graph = two_products();
  const auto planned = [&](bool reuse) {
    CompileOptions options;
    options.reuse = reuse;
    OrderedGraph ordered(graph, lowering_options(options, *target));
    EXPECT_EQ(ordered.schedules().size(), reuse ? static_cast<size_t>(kNumOrderStrategies) : 1u);
    LowerOptions chosen;
    return std::move(ordered).lay_out(device_of(Device::unlimited_bytes()), chosen);
  };
  // With reuse, the results of the inner products share bytes.
  EXPECT_GT(planned(false).plan.analysis.device().total_bytes,
            planned(true).plan.analysis.device().total_bytes);
}

}  // namespace
}  // namespace stow
