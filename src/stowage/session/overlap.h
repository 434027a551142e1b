// Which moves between memories run beside the computation, as far as memory allows.
// Not how; passes/transfers.h does that.
#pragma once

#include <functional>

#include "stowage/plan/memory_plan.h"
#include "stowage/runtime/device.h"

namespace stow {

/// A schedule and its layout.
struct Planned {
  Schedule schedule;
  MemoryPlan plan;
};

/// Seconds that a step would take on an accelerator of today, and those it would take with a link as
/// fast as its computation, where hiding is hardest: what tells which of two schedules hides its
/// moves better where nobody said what it will run on.
double nominal_step_s(const Schedule& schedule);

/// The same program with up to `ahead` moves of each stream under way at a time, or fewer where that
/// is nominally faster. Its totals stay within the capacities; where the device has no limit, within
/// the plan's own total there. A plan over a capacity is returned as it is. `apart` makes the schedule
/// whose loops have each iteration laid out by itself, for where what crosses iterations leaves gaps;
/// empty where there is none.
Planned overlap(Planned planned, int ahead, const Device::Capacities& capacities,
                const std::function<Schedule()>& apart = {});

}  // namespace stow
