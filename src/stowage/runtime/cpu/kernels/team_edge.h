// What a thread sanitizer is told of the end of a parallel region: GCC's OpenMP does not tell it.
// Not a barrier, and nothing at all in other builds.
#pragma once

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace stow::cpu {

/// Stands before a region, whose threads call leave() last: what they did comes before all that is
/// done behind it.
class TeamEdge {
 public:
  TeamEdge() = default;
  TeamEdge(const TeamEdge&) = delete;
  TeamEdge& operator=(const TeamEdge&) = delete;
#if defined(__SANITIZE_THREAD__)
  ~TeamEdge() { __tsan_acquire(this); }
  void leave() { __tsan_release(this); }
#else
  ~TeamEdge() {}
  void leave() {}
#endif
};

}  // namespace stow::cpu
