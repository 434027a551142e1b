// Repeats every element of a dense row several times, a vector at a time.
// Not a strided copy in general; those are in copy.cpp.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

namespace stow::cpu {

/// dst[kTimes * i + k] = src[i] for i in [0, n) and k in [0, kTimes). W is an unsigned integer; dst
/// and src do not overlap.
template <int kTimes, typename W>
void repeat_row(W* dst, const W* src, int64_t n) {
  constexpr int kLanes = 16 / int{sizeof(W)};
  using V [[gnu::vector_size(16)]] = W;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    V v;
    std::memcpy(&v, src + i, sizeof(v));
    const auto store = [&]<int kPart, int... I>(std::integer_sequence<int, I...>) {
      const V part = __builtin_shufflevector(v, v, ((kPart * kLanes + I) / kTimes)...);
      std::memcpy(dst + i * kTimes + kPart * kLanes, &part, sizeof(part));
    };
    const auto store_all = [&]<int... kPart>(std::integer_sequence<int, kPart...>) {
      (store.template operator()<kPart>(std::make_integer_sequence<int, kLanes>()), ...);
    };
    store_all(std::make_integer_sequence<int, kTimes>());
  }
  for (; i < n; ++i)
    for (int k = 0; k < kTimes; ++k) dst[i * kTimes + k] = src[i];
}

}  // namespace stow::cpu
