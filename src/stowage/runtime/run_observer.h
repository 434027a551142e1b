// RunObserver: receives every kernel, move and collective that a program has run, with its times.
// Not a profiler; observers aggregate or store the events.
#pragma once

#include <chrono>
#include <cstdint>

#include "stowage/base/inside.h"
#include "stowage/ir/schedule.h"

namespace stow {

/// One run of a kernel, move or collective, real or simulated. A wait for a move (phase kDone) is
/// an event on kCompute.
struct RunEvent {
  const Kernel* kernel = nullptr;  ///< A kernel of the program's schedule.
  StreamKind stream = StreamKind::kCompute;
  /// Number of the instant in this run. It is the instant's number on the plan's timeline if that
  /// is the timeline of every run.
  int64_t instant = 0;
  double begin_s = 0, end_s = 0;  ///< Real: by steady_clock. Simulated: since the step's beginning.
};

/// Returns the time of std::chrono::steady_clock, in seconds.
inline double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class RunObserver {
 public:
  virtual ~RunObserver() = default;
  /// Called when a kernel, move or collective has ended, by the thread that ran it. Each stream has
  /// its own thread: calls may be concurrent and out of order.
  virtual void ran(const RunEvent& event) = 0;
};

}  // namespace stow
