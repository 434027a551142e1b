#include "stowage/tune/kernel_times.h"

namespace stow {

void KernelTimes::add(std::span<const RunEvent> events) {
  for (const RunEvent& event : events)
    if (event.kernel->phase != MovePhase::kDone)
      seconds_[event.kernel].push_back(event.end_s - event.begin_s);
}

double KernelTimes::seconds(const Kernel& kernel, int64_t run) const {
  const auto found = seconds_.find(&kernel);
  if (found == seconds_.end() || run >= static_cast<int64_t>(found->second.size())) return -1;
  return found->second[static_cast<size_t>(run)];
}

}  // namespace stow
