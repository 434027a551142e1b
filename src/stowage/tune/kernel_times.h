// KernelTimes: how long each kernel and move of a schedule took in a real run of it.
// Not a cost model; it knows nothing of kernels that never ran.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/runtime/run_observer.h"

namespace stow {

class KernelTimes {
 public:
  /// Takes in the events of one run of the schedule.
  void add(std::span<const RunEvent> events);
  /// Seconds of a kernel's run, the first being 0, or of a move's while its stream was at it; -1
  /// where it did not run so often. To be given to simulate() as SimulateOptions::measured_s: then
  /// what is simulated is the order, the overlap and the waiting alone.
  double seconds(const Kernel& kernel, int64_t run) const;

 private:
  std::map<const Kernel*, std::vector<double>> seconds_;  // seconds of each run
};

}  // namespace stow
