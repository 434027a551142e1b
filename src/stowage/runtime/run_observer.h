// RunObserver: told of every instruction that a program has run, with its times.
// Not a profiler; what is made of it is the observer's affair.
#pragma once

#include <chrono>
#include <cstdint>

#include "stowage/base/inside.h"
#include "stowage/ir/schedule.h"

namespace stow {

/// One run of a kernel or a move, real or simulated. A wait for a move (phase kDone) is one on
/// kCompute. Of real runs the times are those of std::chrono::steady_clock, of simulated ones they
/// count from the step's beginning.
struct RunEvent {
  const Kernel* kernel = nullptr;  ///< A kernel of the program's schedule.
  StreamKind stream = StreamKind::kCompute;
  int64_t instant = 0;  ///< Counts what the program comes by in a run; where every run is alike, the
                        ///< plan's timeline has the same numbers.
  double begin_s = 0, end_s = 0;
};

/// The clock of real runs, in seconds.
inline double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class RunObserver {
 public:
  virtual ~RunObserver() = default;
  /// Called when it has ended, by the thread that ran it: streams beside compute have threads of
  /// their own, so calls may come at the same time and out of order.
  virtual void ran(const RunEvent& event) = 0;
};

}  // namespace stow
