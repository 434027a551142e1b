#include "stowage/tune/kernel_times.h"

namespace stow {

void KernelTimes::add(std::span<const RunEvent> events) {
  for (const RunEvent& event : events) {
    if (event.kernel->phase == MovePhase::kDone) continue;
    Sum& sum = sums_[event.kernel];
    sum.seconds += event.end_s - event.begin_s;
    ++sum.runs;
  }
}

double KernelTimes::seconds(const Kernel& kernel) const {
  const auto found = sums_.find(&kernel);
  if (found == sums_.end()) return -1;
  return found->second.seconds / static_cast<double>(found->second.runs);
}

}  // namespace stow
