// Entry and exit of a parallel region: pins its threads, and tells a thread sanitizer of the
// region, which GCC's OpenMP does not.
// Not a barrier itself.
#pragma once

#include "stowage/runtime/cpu/kernels/team_pin.h"

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace stow::cpu {

/// Stands before a region, whose threads call enter() first and leave() last: what was done before
/// it comes before what they do, and that before what is done behind it.
class TeamEdge {
 public:
  TeamEdge(const TeamEdge&) = delete;
  TeamEdge& operator=(const TeamEdge&) = delete;
#if defined(__SANITIZE_THREAD__)
  TeamEdge() { __tsan_release(this); }
  ~TeamEdge() { __tsan_acquire(this); }
  void enter() {
    __tsan_acquire(this);
    pin_in_team();
  }
  void leave() { __tsan_release(this); }
#else
  TeamEdge() {}
  ~TeamEdge() {}
  void enter() { pin_in_team(); }
  void leave() {}
#endif
};

/// All threads of the innermost region.
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
