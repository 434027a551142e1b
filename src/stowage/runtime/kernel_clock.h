// KernelClock: is told how long each kernel of a program took.
// Not a profile; what comes of the times is the clock's business.
#pragma once

#include "stowage/ir/schedule.h"

namespace stow {

class KernelClock {
 public:
  virtual ~KernelClock() = default;
  /// Called behind each kernel, on the thread that runs the program. The seconds are those of the
  /// wall, or of the processor where the program has one thread.
  virtual void ran(const Kernel& kernel, double seconds) = 0;
};

/// While it lives, the programs that this thread runs tell `clock`.
class KernelClockScope {
 public:
  explicit KernelClockScope(KernelClock* clock) : before_(current()) { current() = clock; }
  ~KernelClockScope() { current() = before_; }
  KernelClockScope(const KernelClockScope&) = delete;
  KernelClockScope& operator=(const KernelClockScope&) = delete;

  static KernelClock*& current() {
    static thread_local KernelClock* clock = nullptr;
    return clock;
  }

 private:
  KernelClock* before_;
};

}  // namespace stow
