// Copies a dense row backwards, a vector at a time.
// Not a strided copy in general; those are in copy.cpp and row_kernels_move.cpp.
#pragma once

#include <cstdint>
#include <cstring>

namespace stow::cpu {

/// dst[i] = src[-i] for i in [0, n). W is an unsigned integer; dst and src do not overlap.
template <typename W>
void reverse_row(W* dst, const W* src, int64_t n) {
  constexpr int64_t kLanes = 16 / int64_t{sizeof(W)};
  using V [[gnu::vector_size(16)]] = W;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    V v;
    std::memcpy(&v, src - i - kLanes + 1, sizeof(v));
    if constexpr (kLanes == 16)
      v = __builtin_shufflevector(v, v, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    else if constexpr (kLanes == 8)
      v = __builtin_shufflevector(v, v, 7, 6, 5, 4, 3, 2, 1, 0);
    else if constexpr (kLanes == 4)
      v = __builtin_shufflevector(v, v, 3, 2, 1, 0);
    else
      v = __builtin_shufflevector(v, v, 1, 0);
    std::memcpy(dst + i, &v, sizeof(v));
  }
  for (; i < n; ++i) dst[i] = src[-i];
}

}  // namespace stow::cpu
