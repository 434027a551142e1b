// Nest: the loops over N strided operands of one shape, with unit axes dropped and axes merged.
// Not an iteration order by itself; callers sort the axes where the order is free.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "stowage/core/shape.h"

namespace stow::cpu::kernels {

template <size_t N>
struct LoopAxis {
  int64_t extent = 1;
  std::array<int64_t, N> stride{};  ///< In elements of each operand.
};

/// Outermost first. No axes: one element.
template <size_t N>
using Nest = std::vector<LoopAxis<N>>;

template <size_t N>
int64_t count(const Nest<N>& nest) {
  int64_t n = 1;
  for (const auto& axis : nest) n *= axis.extent;
  return n;
}

template <size_t N>
void add_axis(Nest<N>& nest, int64_t extent, const std::array<int64_t, N>& stride) {
  if (extent != 1) nest.push_back({extent, stride});
}

/// Joins neighbours that every operand walks as one axis.
template <size_t N>
void merge(Nest<N>& nest) {
  Nest<N> merged;
  for (const auto& axis : nest) {
    bool joins = !merged.empty();
    for (size_t k = 0; joins && k < N; ++k)
      joins = merged.back().stride[k] == axis.stride[k] * axis.extent;
    if (joins)
      merged.back() = {merged.back().extent * axis.extent, axis.stride};
    else
      merged.push_back(axis);
  }
  nest = std::move(merged);
}

/// Largest stride of operand `k` first.
template <size_t N>
void sort_by_stride(Nest<N>& nest, size_t k) {
  std::stable_sort(nest.begin(), nest.end(), [&](const auto& a, const auto& b) {
    return std::abs(a.stride[k]) > std::abs(b.stride[k]);
  });
}

/// The elements of a nest in row-major order, from any of them on.
template <size_t N>
class Walk {
 public:
  Walk(const Nest<N>& nest, int64_t begin) : nest_(nest), index_(nest.size()) { seek(begin); }

  void seek(int64_t linear) {
    offset = {};
    for (size_t a = nest_.size(); a-- > 0;) {
      const int64_t extent = std::max<int64_t>(nest_[a].extent, 1);
      index_[a] = linear % extent;
      linear /= extent;
      for (size_t k = 0; k < N; ++k) offset[k] += index_[a] * nest_[a].stride[k];
    }
  }
  void next() { advance(1); }
  /// Steps `n` along the innermost axis; n is at most run().
  void advance(int64_t n) {
    for (size_t a = nest_.size(); a-- > 0; n = 1) {
      for (size_t k = 0; k < N; ++k) offset[k] += n * nest_[a].stride[k];
      if ((index_[a] += n) < nest_[a].extent) return;
      index_[a] = 0;
      for (size_t k = 0; k < N; ++k) offset[k] -= nest_[a].extent * nest_[a].stride[k];
    }
  }
  /// Elements left along the innermost axis.
  int64_t run() const { return nest_.empty() ? 1 : nest_.back().extent - index_.back(); }

  std::array<int64_t, N> offset{};  ///< Offsets of the element walked to, in elements.

 private:
  const Nest<N>& nest_;
  std::vector<int64_t> index_;
};

}  // namespace stow::cpu::kernels
