// find_fastest: the fitting placement with the shortest simulated step on a described device.
// Not the fallback for plans that barely fit; choice.cpp has that.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/runtime/null/device_description.h"
#include "stowage/train/job.h"

namespace stow {

/// Searches the placements that a configuration leaves open, in the order of lower bounds on their
/// step times, until no other placement can be faster by a hundredth than the best one that fits.
/// Chunks are taken to shorten no step: they are tried where memory is short. Placements with
/// the same computation, which differ only in the memory kinds of their state, form a *work*. The
/// placement of a work that moves least is planned first, and gives bounds for the others: their
/// peak is at least its peak without the state that they move; their step takes at least as long as
/// its busiest stream with that state moved. A work takes at least as long as any work whose
/// computation it contains. Placements that cannot fit by these bounds are not planned.
///
/// The device is the description of the job's target. The plan has moves ahead. It is none if no
/// planned placement fits; a placement that was not planned may still fit. `candidates`: all
/// planned placements; those that fit come last, the slowest first.
Choice find_fastest(const Job& job, const Budgets& budgets);

/// Estimates a lower bound on the bytes of a placement that count against the device's budget: the
/// peak of `base`, a plan of the same work, without the state and gradients that `placement` moves
/// and `base` does not.
int64_t least_device_bytes(const Job& job, const JobPlan& base, const Placement& placement);

/// Estimates a lower bound on the seconds of a placement's step: the time of the busiest stream of
/// `base` with the additional moves of `placement`.
double least_step_s(const Job& job, const JobPlan& base, const Placement& placement,
                    const DeviceDescription& device);

/// The step time that a full search of a plan is expected to reach. `few_ahead_s`: the step with
/// few moves ahead. `least_s`: the busy time of the busiest stream. `spare`: the share of the
/// device's budget that the plan leaves, 0 to 1. A full search uses the spare bytes for moves
/// further ahead and for residuals that stay on the device. Source: measured over the plans of 16
/// searches (docs/decisions/0016-one-plan-search.md).
double expected_step_s(double few_ahead_s, double least_s, double spare);

}  // namespace stow
