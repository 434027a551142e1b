#include "stowage/tune/kernel_times.h"

#include <algorithm>

namespace stow {

void KernelTimes::add(std::span<const RunEvent> events) {
  for (const RunEvent& event : events)
    if (event.kernel->phase != MovePhase::kDone)
      seconds_[event.kernel].push_back(event.end_s - event.begin_s);
}

double KernelTimes::seconds(const Kernel& kernel) const {
  const auto found = seconds_.find(&kernel);
  if (found == seconds_.end()) return -1;
  std::vector<double> sorted = found->second;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

}  // namespace stow
