// The choice of moves and collectives that run beside the computation, as far as memory allows.
// Not how; passes/transfers.h does that.
#pragma once

#include <functional>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/runtime/null/device_description.h"
#include "stowage/session/layout.h"

namespace stow {

/// Bounds of the work of one call. Smaller ones are for tests.
struct OverlapLimits {
  int layouts = 7;  ///< Layouts tried; each asks for less by twice what the one before was over.
  /// Trials of one attempt: how fine moves are told apart. Some dozen moves take all of them, so this one
  /// is not reported, as the width of a beam is not.
  int trials = 100;
  int64_t trial_instants = 2'000'000;  ///< Instants of the timelines of one attempt's trials.
  /// Instants of all attempts, after which moves are only lowered to what fits.
  int64_t instants = 1'500'000;
  /// Steps of moves past others in one attempt after which none is tried further ahead.
  int64_t work = 4'000'000;
};

/// The same with moves a few ahead, as far as its largest live sums stay within the capacities; no layout was
/// made of it. Its step time is an upper bound, or nearly, of that after overlap() has searched.
Schedule with_few_ahead(const Schedule& schedule, const Device::Capacities& capacities,
                        const DeviceDescriptionPtr& device = nullptr);

/// True if a plan with this schedule is worth the search for its layout.
using IsWorthIt = std::function<bool(const Schedule&)>;

/// The same program with up to `ahead` moves of each stream under way at a time, or fewer where
/// that is faster on `device`. Its totals stay within the capacities; where the device has no limit,
/// within the plan's own total there. A plan over a capacity is returned as it is. `apart` makes
/// the schedule whose loops have each iteration laid out by itself, for where what crosses
/// iterations leaves gaps; empty where there is none; it may be called by another thread, if there
/// may be several. The plan is returned as it is, too, if `is_worth_it` is given and false of the first
/// schedules that are chosen: layouts that are tried after them take nearly the same time. A bound that took
/// effect is a sentence in the plan's `limits`.
Planned overlap(Planned planned, int ahead, const Device::Capacities& capacities,
                const DeviceDescriptionPtr& device = nullptr,
                const std::function<Schedule()>& apart = {}, int threads = 1,
                const OverlapLimits& bounds = {}, const IsWorthIt& is_worth_it = {});

}  // namespace stow
