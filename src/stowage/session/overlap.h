// The choice of moves and collectives that run ahead, parallel to compute, within capacities.
// Not the transformation of the schedule; passes/transfers.h has that.
#pragma once

#include <functional>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/runtime/null/device_description.h"
#include "stowage/session/layout.h"

namespace stow {

/// Bounds of the work of one overlap() call. Tests use smaller ones.
struct OverlapLimits {
  int layouts = 7;  ///< Layouts that are tried.
  /// Trials of one attempt, each of which simulates a choice of moves. A few dozen moves use them
  /// all, so reaching this bound is not reported.
  int trials = 100;
  int64_t trial_instants = 2'000'000;  ///< Instants of the timelines of one attempt's trials.
  /// Instants of the timelines of all attempts; beyond it, moves run less far ahead until they fit,
  /// and never further.
  int64_t total_instants = 1'500'000;
  /// Work of one attempt: examined pairs of a move and an instruction that it might pass. Beyond
  /// it, no move is tried further ahead.
  int64_t work = 4'000'000;
};

/// Returns the schedule with moves started a few moves ahead, as far as its largest live sums stay
/// within the capacities. Makes no layout. The schedule's step time is an upper bound, or nearly
/// one, of the step time after overlap().
Schedule with_few_ahead(const Schedule& schedule, const Device::Capacities& capacities,
                        const DeviceDescription& device);

/// True if a plan with this schedule is worth the search for its layout.
using IsWorthIt = std::function<bool(const Schedule&)>;

/// Returns the program with up to `ahead` moves of each stream in flight at a time, or fewer if
/// that is faster on `device`. Totals stay within the capacities; if the device is unlimited, its
/// total stays within the plan's own. `per_iteration_schedule`: returns the schedule whose loops
/// have each iteration laid out by itself, which may close gaps around values that cross
/// iterations; empty if there is none. If `threads` > 1, another thread may call it. `is_worth_it`:
/// if given and false for the first schedules that are chosen, the search ends, because later
/// layouts take nearly the same time. Returns `planned` unchanged if it exceeds a capacity, is not
/// worth it, or no layout with moves ahead fits. A bound that took effect is a sentence in the
/// plan's `limits`.
Planned overlap(Planned planned, int ahead, const Device::Capacities& capacities,
                const DeviceDescription& device,
                const std::function<Schedule()>& per_iteration_schedule = {}, int threads = 1,
                const OverlapLimits& bounds = {}, const IsWorthIt& is_worth_it = {});

}  // namespace stow
