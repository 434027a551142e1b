// The placement whose step is the shortest of those that fit, by simulation on a described device.
// Not the first that fits, for devices of which nothing is known; choice.cpp has that.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/runtime/null/device_description.h"
#include "stowage/train/job.h"

namespace stow {

/// Searches the placements that a configuration leaves open, the shortest step first, by what a step takes at
/// the least; until none can be shorter than what fits. Placements that compute alike, and differ in where
/// their state lies, are one *work*; of each the one that moves least is planned first. It tells what the
/// others take: of the device no less than its peak without the state that they move, of time no less than
/// the busiest stream with that state moved. A work takes no less time than one whose computation it
/// contains. What cannot fit by that is not planned.
///
/// The device is that of the job's target, which has a description. The plan has its moves ahead. There is none
/// where nothing that was planned fits; then something that was not planned may. `candidates` are all that were
/// planned; those that fit are the last, the slowest first.
Choice find_fastest(const Job& job, const Budgets& budgets);

/// Near the least that a placement takes of what counts against the device's budget: the peak of `base`,
/// a plan of the same work, without the state and gradients that `placement` moves and `base` does not.
int64_t least_device_bytes(const Job& job, const JobPlan& base, const Placement& placement);

/// Near the least seconds of its step: the busiest stream of `base`, with what more `placement` moves.
double least_step_s(const Job& job, const JobPlan& base, const Placement& placement,
                    const DeviceDescription& device);

}  // namespace stow
