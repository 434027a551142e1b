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
  /// Adds the events of one run of the schedule.
  void add(std::span<const RunEvent> events);
  /// Returns the seconds of run number `run`, from 0, of a kernel, or for a move the seconds that
  /// its stream was busy with it; -1 if it ran less often. For SimulateOptions::measured_s:
  /// simulate() then models only order, overlap and waits.
  double seconds(const Kernel& kernel, int64_t run) const;

 private:
  std::map<const Kernel*, std::vector<double>> seconds_;  // by run
};

}  // namespace stow
