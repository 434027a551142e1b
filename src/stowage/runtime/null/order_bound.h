// How fast a schedule's kernels and moves could be, in their order, if memory had no end.
// Not a simulation of what runs; that waits for slots to be free as well (simulate.h).
#pragma once

#include <optional>

#include "stowage/base/inside.h"
#include "stowage/runtime/null/simulate.h"

namespace stow {

/// Seconds of a step in which nothing waits for memory: each stream takes what it is given in the
/// order of the schedule, as soon as what it reads has been written. More memory, or moves further
/// ahead, do not make the step faster than this; it is never below Simulation::bound_s. None for a
/// schedule of more than `options.max_walked` instructions, as each of them is gone through. What the
/// options say of events, skips and measured times is left out.
std::optional<double> order_bound(const Schedule& schedule, const DeviceDescription& description,
                                  const SimulateOptions& options = {});

}  // namespace stow
