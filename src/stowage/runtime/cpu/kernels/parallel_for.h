// Splits an index range among OpenMP threads. Not a scheduler: ranges are equal and static.
// Not a promise of which thread gets what; callers' results must not depend on the split.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

#include "stowage/runtime/cpu/kernels/team_edge.h"

namespace stow::cpu::kernels {

/// Calls f(begin, end, thread) on disjoint ranges that cover [0, n), each of at least `grain`
/// where it can, with thread < threads. Runs in the caller's thread when one range is enough.
template <typename F>
void parallel_for(int threads, int64_t n, int64_t grain, const F& f) {
  if (n <= 0) return;
  const auto parts = static_cast<int>(
      std::clamp<int64_t>(n / std::max<int64_t>(grain, 1), 1, std::max(threads, 1)));
  if (parts == 1) return f(int64_t{0}, n, 0);
  TeamEdge edge;
#pragma omp parallel num_threads(parts)
  {
    edge.enter();
    const int64_t p = omp_get_num_threads(), t = omp_get_thread_num();
    const int64_t begin = n / p * t + std::min(t, n % p);
    const int64_t end = begin + n / p + (t < n % p ? 1 : 0);
    if (begin < end) f(begin, end, static_cast<int>(t));
    edge.leave();
  }
}

/// Bytes of memory traffic worth a thread of their own.
inline constexpr int64_t kBytesPerThread = 32 << 10;

}  // namespace stow::cpu::kernels
