#include "stowage/session/plan_score.h"

#include <algorithm>
#include <cstdlib>

#include "stowage/runtime/null/simulate.h"

namespace stow {

bool is_better(const PlanScore& a, const PlanScore& b) {
  if (a.shortfall != b.shortfall) return a.shortfall < b.shortfall;
  const bool fits = a.shortfall == 0;
  if (fits && a.step_s > 0 && b.step_s > 0) {
    if (a.step_s < kShorterStep * b.step_s) return true;
    if (b.step_s < kShorterStep * a.step_s) return false;
  }
  const bool decides_elsewhere = fits && a.other_bytes != b.other_bytes &&
                                 std::abs(a.device_bytes - b.device_bytes) <= kFewDeviceBytes;
  return decides_elsewhere ? a.other_bytes < b.other_bytes : a.device_bytes < b.device_bytes;
}

int64_t shortfall(const std::array<int64_t, kNumMemoryKinds>& bytes,
                  const Device::Capacities& capacities) {
  int64_t sum = 0;
  for (size_t kind = 0; kind < capacities.size(); ++kind)
    sum += std::max<int64_t>(bytes[kind] - capacities[kind], 0);
  return sum;
}

PlanScore score_of(const MemoryAnalysis& analysis, const Device::Capacities& capacities) {
  std::array<int64_t, kNumMemoryKinds> bytes;
  for (size_t kind = 0; kind < bytes.size(); ++kind) bytes[kind] = analysis.kinds[kind].total_bytes;
  return {.shortfall = shortfall(bytes, capacities),
          .step_s = 0,
          .device_bytes = analysis.device().total_bytes,
          .other_bytes = analysis.host().total_bytes + analysis.disk().total_bytes};
}

bool hides_well(const Schedule& schedule, const DeviceDescription& device) {
  const Simulation s = simulate(schedule, device);
  return hides_well(s.step_s, s.bound_s);
}

}  // namespace stow
