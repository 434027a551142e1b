// Nest: a loop nest over N strided operands of one shape, without axes of extent 1.
// Not a choice of loop order; callers sort and merge the axes if the order is free.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "stowage/core/shape.h"

namespace stow::cpu::kernels {

/// One loop of a nest.
template <size_t N>
struct LoopAxis {
  int64_t extent = 1;
  std::array<int64_t, N> stride{};  ///< In elements of each operand.
};

/// Loops, outermost first. A nest without axes has one element.
template <size_t N>
using Nest = std::vector<LoopAxis<N>>;

/// Returns the number of elements of a nest.
template <size_t N>
int64_t count(const Nest<N>& nest) {
  int64_t n = 1;
  for (const auto& axis : nest) n *= axis.extent;
  return n;
}

/// Appends an innermost axis, unless its extent is 1.
template <size_t N>
void add_axis(Nest<N>& nest, int64_t extent, const std::array<int64_t, N>& stride) {
  if (extent != 1) nest.push_back({extent, stride});
}

/// Merges each pair of adjacent axes that has one common stride in every operand.
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

/// Sorts the axes by the magnitude of operand k's stride, the largest outermost.
template <size_t N>
void sort_by_stride(Nest<N>& nest, size_t k) {
  std::stable_sort(nest.begin(), nest.end(), [&](const auto& a, const auto& b) {
    return std::abs(a.stride[k]) > std::abs(b.stride[k]);
  });
}

/// An iterator over the elements of a nest in row-major order. The nest must outlive it.
template <size_t N>
class Walk {
 public:
  /// Starts at row-major element `begin`.
  Walk(const Nest<N>& nest, int64_t begin) : nest_(nest), index_(nest.size()) { seek(begin); }

  /// Moves to row-major element `linear`.
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
  /// Moves n elements on along the innermost axis; n is at most run().
  void advance(int64_t n) {
    for (size_t a = nest_.size(); a-- > 0; n = 1) {
      for (size_t k = 0; k < N; ++k) offset[k] += n * nest_[a].stride[k];
      if ((index_[a] += n) < nest_[a].extent) return;
      index_[a] = 0;
      for (size_t k = 0; k < N; ++k) offset[k] -= nest_[a].extent * nest_[a].stride[k];
    }
  }
  /// Returns the number of elements left along the innermost axis, the current one included.
  int64_t run() const { return nest_.empty() ? 1 : nest_.back().extent - index_.back(); }

  std::array<int64_t, N> offset{};  ///< Offset of the current element in each operand, in elements.

 private:
  const Nest<N>& nest_;
  std::vector<int64_t> index_;
};

}  // namespace stow::cpu::kernels
