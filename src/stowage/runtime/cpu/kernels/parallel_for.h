// Splits an index range among OpenMP threads into equal, static ranges.
// Not a scheduler; the results of callers must not depend on which thread gets which range.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

#include "stowage/runtime/cpu/kernels/team_edge.h"

namespace stow::cpu::kernels {

/// Calls f(begin, end, thread) on disjoint ranges that cover [0, n), with thread < threads. A range
/// has at least `grain` indices, unless n is less. A single range runs on the caller's thread.
template <typename F>
void parallel_for(int threads, int64_t n, int64_t grain, const F& f) {
  if (n <= 0) return;
  const auto parts = static_cast<int>(
      std::clamp<int64_t>(n / std::max<int64_t>(grain, 1), 1, std::max(threads, 1)));
  if (parts == 1) return f(int64_t{0}, n, 0);
  ParallelRegionScope region;
#pragma omp parallel num_threads(parts)
  {
    region.enter();
    const int64_t p = omp_get_num_threads(), t = omp_get_thread_num();
    const int64_t begin = n / p * t + std::min(t, n % p);
    const int64_t end = begin + n / p + (t < n % p ? 1 : 0);
    if (begin < end) f(begin, end, static_cast<int>(t));
    region.leave();
  }
}

/// Bytes of memory traffic that are worth one more thread.
inline constexpr int64_t kBytesPerThread = 32 << 10;

}  // namespace stow::cpu::kernels
