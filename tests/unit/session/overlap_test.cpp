// What a search for moves ahead leaves alone, and which device it goes by.
#include <gtest/gtest.h>

#include "stowage/base/inside.h"
#include "stowage/ir/schedule_printer.h"
#include "stowage/runtime/null/built_in_devices.h"
#include "stowage/runtime/null/simulate.h"
#include "stowage/session/overlap.h"
#include "stowage/session/plan_score.h"
#include "stowage/stowage.h"
#include "stowage/tune/devices.h"
#include "tests/support/realized.h"
#include "tests/unit/session/offloaded_step_kit.h"

namespace stow {
namespace {

using testing::has_moves_ahead;

constexpr int64_t kWidth = 64;

// Products with weights of the host, laid out with their moves by themselves.
Planned plain_plan() {
  const auto f = [](const std::vector<Array>& weights, const Array& x) {
    Array h = x;
    for (const Array& w : weights) h = tanh(matmul(h, device_put(w, MemoryKind::kDevice)));
    return h;
  };
  const ArrayType weight{DType::kF32, Shape{kWidth, kWidth}, MemoryKind::kPinnedHost};
  const Graph traced =
      jit(f)
          .lower(std::vector<Array>(6, Array::abstract(weight)), Array::abstract({kWidth, kWidth}))
          .graph();
  const Graph graph = testing::realized(traced);
  const Schedule schedule = lower(graph, {});
  return {schedule, make_plan(schedule, kFinalEffort)};
}

TEST(Overlap, LeavesAPlanThatIsNotWorthIt) {
  const Planned plain = plain_plan();
  Device::Capacities capacities;
  capacities.fill(Device::unlimited_bytes());
  capacities[0] = 2 * plain.plan.analysis.device().total_bytes;
  int n_asked = 0;
  const auto overlapped = [&](bool is_worth_it) {
    return overlap(plain, 8, capacities, *common_cpu(), {}, 1, {},
                   [&, is_worth_it](const Schedule& schedule) {
                     EXPECT_TRUE(has_moves_ahead(schedule));
                     ++n_asked;
                     return is_worth_it;
                   });
  };
  EXPECT_EQ(print(overlapped(false).schedule), print(plain.schedule));
  EXPECT_GE(n_asked, 1);
  EXPECT_TRUE(has_moves_ahead(overlapped(true).schedule));
}

// What is chosen for a device is as fast there as what is chosen for another one.
TEST(Overlap, IsForTheDeviceThatIsNamed) {
  const Planned plain = plain_plan();
  Device::Capacities capacities;
  capacities.fill(Device::unlimited_bytes());
  for (const char* name : {"h200", "rtx4080-laptop"})
    for (const double slower : {1.0, 100.0})
      for (const int percent : {105, 150}) {
        DeviceDescription d = *load_device_description(name);
        d.link.to_device = d.link.to_host /= slower;
        capacities[0] = plain.plan.analysis.device().total_bytes * percent / 100;
        const auto step_s = [&](const DeviceDescription& device) {
          return simulate(overlap(plain, 8, capacities, device).schedule, d).step_s;
        };
        EXPECT_LE(step_s(d), 1.001 * step_s(*common_cpu()))
            << name << " " << slower << " " << percent;
        EXPECT_LT(step_s(d), simulate(plain.schedule, d).step_s);
        EXPECT_EQ(hides_well(plain.schedule, d),
                  simulate(plain.schedule, d).step_s <= 1.03 * simulate(plain.schedule, d).bound_s);
      }
}

}  // namespace
}  // namespace stow
