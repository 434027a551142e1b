// order_bound: the time of a schedule in its order, if memory were unlimited.
// Not a simulation of the program, which also waits for free slots (simulate.h).
#pragma once

#include <optional>

#include "stowage/base/inside.h"
#include "stowage/runtime/null/simulate.h"

namespace stow {

/// Returns the seconds of a step in which no instruction waits for memory: each stream runs its
/// instructions in the order of the schedule, each as soon as its operands have been written. More
/// memory, or moves further ahead, cannot make the step faster. The result is at least
/// Simulation::bound_s. None if more than `options.max_walked` instructions would be walked. Of the
/// options, only max_walked and open_iterations are used.
std::optional<double> order_bound(const Schedule& schedule, const DeviceDescription& description,
                                  const SimulateOptions& options = {});

}  // namespace stow
