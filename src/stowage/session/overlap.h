// Which moves between memories run beside the computation, as far as memory allows.
// Not how; passes/transfers.h does that.
#pragma once

#include <functional>
#include <vector>

#include "stowage/plan/memory_plan.h"
#include "stowage/runtime/device.h"
#include "stowage/runtime/null/simulate.h"

namespace stow {

/// A schedule and its layout.
struct Planned {
  Schedule schedule;
  MemoryPlan plan;
};

/// An accelerator of today, with its link and with links that move what a schedule moves in half the
/// time of its computation, the same and twice that: what tells how well a schedule hides its moves
/// where nobody said what it will run on. The first alone where nothing is computed or moved.
std::vector<DeviceDescription> nominal_devices(const Schedule& schedule);

/// How much longer than its busiest stream a step takes, the mean over these devices.
double slowness(const Schedule& schedule, const std::vector<DeviceDescription>& devices);
/// At this there is little left to hide.
inline constexpr double kWellHidden = 1.03;

/// How much longer than a step of another schedule, the mean over the nominal devices of that one.
double time_beside(const Schedule& schedule, const Schedule& other);

/// The same program with up to `ahead` moves of each stream under way at a time, or fewer where that
/// is nominally faster. Its totals stay within the capacities; where the device has no limit, within
/// the plan's own total there. A plan over a capacity is returned as it is. `apart` makes the schedule
/// whose loops have each iteration laid out by itself, for where what crosses iterations leaves gaps;
/// empty where there is none.
Planned overlap(Planned planned, int ahead, const Device::Capacities& capacities,
                const std::function<Schedule()>& apart = {});

}  // namespace stow
