// Packings that are kept are those that would be found anew.
#include "stowage/plan/packing_cache.h"

#include <gtest/gtest.h>

#include <thread>

#include "stowage/base/inside.h"
#include "stowage/passes/lower.h"
#include "stowage/plan/memory_plan.h"
#include "stowage/stowage.h"
#include "tests/support/realized.h"

namespace stow {
namespace {

// Layers of different widths, with their gradients.
Schedule layers(const std::vector<int64_t>& widths) {
  std::vector<Array> weights;
  for (size_t i = 0; i + 1 < widths.size(); ++i)
    weights.push_back(Array::abstract({widths[i], widths[i + 1]}));
  const auto loss = [](const std::vector<Array>& weights, const Array& x) {
    Array y = x;
    for (const Array& w : weights) y = tanh(matmul(y, w));
    return sum(y);
  };
  const Graph traced = jit(grad(loss)).lower(weights, Array::abstract({96, widths[0]})).graph();
  return lower(testing::realized(traced), {});
}

TEST(PackingCache, AreThoseThatWouldBeFound) {
  const std::vector<Schedule> schedules = {layers({40, 100, 30, 80}), layers({40, 90, 30, 80})};
  for (const int64_t work : {int64_t{0}, kFinalEffort.work}) {
    std::vector<MemoryPlan> anew;
    for (const Schedule& s : schedules) anew.push_back(make_plan(s, {.work = work}));
    ASSERT_NE(anew[0].offsets, anew[1].offsets);
    const PackingCacheScope scope;
    const auto expect_kept = [&](size_t s, size_t n) {
      const size_t before = PackingCacheScope::n_reused();
      EXPECT_EQ(make_plan(schedules[s], {.work = work}).offsets, anew[s].offsets);
      EXPECT_EQ(PackingCacheScope::n_reused() - before, n);
    };
    // The schedules use the device alone: the problems of the two other kinds are empty, and alike.
    expect_kept(0, 1);
    expect_kept(1, 2);
    std::thread([&] { expect_kept(0, 3); }).join();
    expect_kept(1, 3);
    make_plan(schedules[0], {.work = work + 1});
    EXPECT_EQ(PackingCacheScope::n_reused(), 1u + 2 + 3 + 3 + 1) << "other work, another packing";
  }
}

TEST(PackingCache, AreDroppedWithTheLastScope) {
  const Schedule schedule = layers({40, 100});
  for (int time = 0; time < 2; ++time) {
    const PackingCacheScope scope;
    make_plan(schedule, kFinalEffort);
    EXPECT_EQ(PackingCacheScope::n_reused(), 1u);
  }
}

}  // namespace
}  // namespace stow
