// Entry and exit of an OpenMP parallel region: pins its threads to processors and tells the thread
// sanitizer about the region, which GCC's OpenMP does not.
// Not a barrier itself.
#pragma once

#include "stowage/runtime/cpu/kernels/team_pin.h"

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace stow::cpu {

/// Constructed before a parallel region and destroyed after it. Each thread of the region calls
/// enter() first and leave() last. For the sanitizer, the work before the region then happens
/// before the threads' work, and that happens before the work after the region.
class ParallelRegionScope {
 public:
  ParallelRegionScope(const ParallelRegionScope&) = delete;
  ParallelRegionScope& operator=(const ParallelRegionScope&) = delete;
#if defined(__SANITIZE_THREAD__)
  ParallelRegionScope() { __tsan_release(this); }
  ~ParallelRegionScope() { __tsan_acquire(this); }
  void enter() {
    __tsan_acquire(this);
    pin_in_team();
  }
  void leave() { __tsan_release(this); }
#else
  ParallelRegionScope() {}
  ~ParallelRegionScope() {}
  void enter() { pin_in_team(); }
  void leave() {}
#endif
};

/// Waits until all threads of the innermost region have called it.
inline void team_barrier() {
#if defined(__SANITIZE_THREAD__)
  static char meeting;
  __tsan_release(&meeting);
#pragma omp barrier
  __tsan_acquire(&meeting);
#else
#pragma omp barrier
#endif
}

}  // namespace stow::cpu
