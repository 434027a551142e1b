// Groups of lanes that kernels along one axis process together. A lane is the elements along that
// axis for one index of the other axes.
// Not the kernels; those are in lanes.cpp and cumulative.cpp.
#pragma once

#include "stowage/runtime/cpu/kernels/nest.h"
#include "stowage/runtime/cpu/kernels/parallel_for.h"

namespace stow::cpu::kernels {

inline constexpr int64_t kLanes = 64;  // lanes of a group if they are closer than a lane's elements
inline constexpr int64_t kFew = 4;     // else, to have several independent chains of additions

/// Calls f(offsets, n, lane_strides) for each group of n <= kLanes lanes along one axis of the nest
/// `lanes`. `offsets` are those of the first lane and `lane_strides` lead from lane to lane, both
/// in elements of each operand. The strides of operand 1 decide the order of the axes.
/// `axis_stride` is operand 1's stride along a lane; `axis_bytes` are the bytes of a lane.
template <size_t N, typename F>
void for_each_lane_group(Nest<N> lanes, int64_t axis_stride, int64_t axis_bytes, int threads,
                         const F& f) {
  if (count(lanes) == 0) return;
  sort_by_stride(lanes, 1);
  merge(lanes);
  LoopAxis<N> inner{1, {}};
  if (!lanes.empty()) {
    inner = lanes.back();
    lanes.pop_back();
  }
  const int64_t size = std::abs(inner.stride[1]) < std::abs(axis_stride) ? kLanes : kFew;
  const int64_t groups = (inner.extent + size - 1) / size;
  const int64_t grain = kBytesPerThread / (std::min(inner.extent, size) * axis_bytes + 1);
  parallel_for(threads, count(lanes) * groups, grain, [&](int64_t begin, int64_t end, int) {
    Walk<N> walk(lanes, begin / groups);
    int64_t group = begin % groups;
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t first = group * size;
      std::array<int64_t, N> at = walk.offset;
      for (size_t k = 0; k < N; ++k) at[k] += first * inner.stride[k];
      f(at, std::min(size, inner.extent - first), inner.stride);
      if (++group == groups) {
        group = 0;
        walk.next();
      }
    }
  });
}

}  // namespace stow::cpu::kernels
