// Operands for kernel tests: values that do not depend on the layout, buffers, and random layouts.
// Not an oracle: see gemm_oracle.h and attention_oracle.h.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/core/dtype.h"
#include "stowage/core/half.h"

namespace stow::testing {

/// Returns an element of a float buffer.
inline double read_element(DType t, const void* data, int64_t i) {
  switch (t) {
    case DType::kF64: return static_cast<const double*>(data)[i];
    case DType::kF32: return static_cast<const float*>(data)[i];
    case DType::kBF16: return widen(static_cast<const Bf16*>(data)[i]);
    case DType::kF16: return widen(static_cast<const F16*>(data)[i]);
    default: ADD_FAILURE() << "no float"; return 0;
  }
}

inline void write_element(DType t, void* data, int64_t i, double value) {
  switch (t) {
    case DType::kF64: static_cast<double*>(data)[i] = value; return;
    case DType::kF32: static_cast<float*>(data)[i] = float(value); return;
    case DType::kBF16: narrow(float(value), static_cast<Bf16*>(data)[i]); return;
    case DType::kF16: narrow(float(value), static_cast<F16*>(data)[i]); return;
    default: ADD_FAILURE() << "no float";
  }
}

/// Returns the relative rounding error of one operation in a dtype.
inline double unit_roundoff(DType t) {
  switch (t) {
    case DType::kF64: return 0x1p-53;
    case DType::kF32: return 0x1p-24;
    case DType::kBF16: return 0x1p-8;
    case DType::kF16: return 0x1p-11;
    default: return 0;
  }
}

/// Returns a value in [-1, 1), a function of `seed` and a logical index only.
inline double value_at(uint64_t seed, uint64_t index) {
  uint64_t x = (index + 1) * 0x9e3779b97f4a7c15u + seed * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  x ^= x >> 31;
  return double(int64_t(x >> 11)) * 0x1p-52 - 1.0;
}

/// Bytes aligned to 64, followed by a guard that nothing may write.
class Buffer {
 public:
  explicit Buffer(int64_t bytes) : bytes_(bytes), store_(bytes + 64 + kGuard, 0xa5) {}
  void* data() {
    return store_.data() + (64 - reinterpret_cast<uintptr_t>(store_.data()) % 64) % 64;
  }
  const void* data() const { return const_cast<Buffer*>(this)->data(); }
  int64_t bytes() const { return bytes_; }
  bool guard_intact() const {
    const auto* end = static_cast<const uint8_t*>(data()) + bytes_;
    return std::all_of(end, end + kGuard, [](uint8_t b) { return b == 0xa5; });
  }

 private:
  static constexpr int64_t kGuard = 256;
  int64_t bytes_;
  std::vector<uint8_t> store_;
};

/// Returns strides for these extents with the axes in a random order and random gaps; seed 0:
/// row-major without gaps. Extents of 0 count as 1. Sets `total` to the number of elements to
/// allocate.
inline std::vector<int64_t> random_strides(const std::vector<int64_t>& extents, uint64_t seed,
                                           int64_t* total) {
  std::vector<size_t> order(extents.size());
  std::iota(order.begin(), order.end(), 0);
  std::mt19937_64 random(seed);
  if (seed) std::shuffle(order.begin(), order.end(), random);
  std::vector<int64_t> strides(extents.size());
  int64_t step = 1;
  for (size_t i = order.size(); i-- > 0;) {
    strides[order[i]] = step;
    step *= std::max<int64_t>(extents[order[i]], 1);
    if (seed) step += int64_t(random() % 3);
  }
  *total = step;
  return strides;
}

}  // namespace stow::testing
