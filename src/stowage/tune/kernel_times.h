// KernelTimes: how long each kernel and move of a schedule took in real runs of it.
// Not a cost model; it knows nothing of kernels that never ran.
#pragma once

#include <map>
#include <span>

#include "stowage/runtime/run_observer.h"

namespace stow {

class KernelTimes {
 public:
  /// Takes in the events of one run.
  void add(std::span<const RunEvent> events);
  /// The mean seconds of a kernel, or of a move while its stream was at it; -1 where it never ran.
  /// To be given to simulate() as SimulateOptions::measured_s: then what is simulated is the order,
  /// the overlap and the waiting alone.
  double seconds(const Kernel& kernel) const;

 private:
  struct Sum {
    double seconds = 0;
    int64_t runs = 0;
  };
  std::map<const Kernel*, Sum> sums_;
};

}  // namespace stow
