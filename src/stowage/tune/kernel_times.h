// KernelTimes: how long each kernel, move and collective of a schedule took when it really ran.
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
  /// Adds the events of one execution of the schedule. Each event is one run of a kernel, move or
  /// collective; one in a loop runs many times. Waits (MovePhase::kDone) are ignored.
  void add(std::span<const RunEvent> events);
  /// Returns the seconds of run number `run` of a kernel, counted from 0 in the order of the added
  /// events; for a move or collective, the seconds that its stream was busy with it. Returns -1 if
  /// no such run was added. For SimulateOptions::measured_s: simulate() then models only order,
  /// overlap and waits.
  double seconds(const Kernel& kernel, int64_t run) const;

 private:
  std::map<const Kernel*, std::vector<double>> seconds_;  // by run
};

}  // namespace stow
