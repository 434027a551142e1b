// PlanScore: the numbers by which the plan search compares two plans, in all its stages.
// Not a stage; layout.h, overlap.h, plan_search.h and train/fastest.h choose by it.
#pragma once

#include <array>
#include <cstdint>

#include "stowage/base/inside.h"
#include "stowage/ir/schedule.h"
#include "stowage/plan/analysis.h"
#include "stowage/runtime/device.h"
#include "stowage/runtime/null/device_description.h"

namespace stow {

struct PlanScore {
  int64_t shortfall = 0;     ///< Bytes above the capacities, summed over memory kinds; 0: it fits.
  double step_s = 0;         ///< Simulated step on the target's device; 0: not simulated.
  int64_t device_bytes = 0;
  int64_t other_bytes = 0;   ///< Bytes of pinned host memory and disk together.
};

/// Largest saving of device bytes that does not justify a second copy of a donated array in another
/// memory.
inline constexpr int64_t kFewDeviceBytes = 64 << 10;

/// A step counts as shorter only if it takes less than this share of the other's time. Smaller
/// differences may be rounding.
inline constexpr double kShorterStep = 0.9999;

/// True if `a` beats `b`. The smaller shortfall wins. Between plans that fit, the shorter step wins
/// (kShorterStep); steps of which one was not simulated count as equal. Then the fewer device bytes
/// win, but kFewDeviceBytes do not outweigh other memory.
bool is_better(const PlanScore& a, const PlanScore& b);

/// Returns the bytes of each memory kind above its capacity, summed; 0 if all kinds fit.
int64_t shortfall(const std::array<int64_t, kNumMemoryKinds>& bytes,
                  const Device::Capacities& capacities);

/// Returns the score of a plan under capacities, without a step time.
PlanScore score_of(const MemoryAnalysis& analysis, const Device::Capacities& capacities);

/// A step counts as hiding its moves if it takes at most this many times as long as its busiest
/// stream: no other order of the moves gains more than the rest.
inline constexpr double kWellHidden = 1.03;

inline bool hides_well(double step_s, double bound_s) { return step_s <= kWellHidden * bound_s; }
/// True if a step of the schedule on the device hides its moves.
bool hides_well(const ir::Schedule& schedule, const DeviceDescription& device);

}  // namespace stow
