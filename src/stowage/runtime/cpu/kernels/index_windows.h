// The loops of XLA's general gather and scatter: over index vectors, and over the window of each.
// Not the kernels; those are in gather.cpp and scatter.cpp.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <type_traits>

#include "stowage/base/inside.h"
#include "stowage/runtime/cpu/kernels/op_families.h"
#include "stowage/runtime/cpu/kernels/op_types.h"

namespace stow::cpu::kernels {

inline bool contains(const Dims& list, size_t value) {
  return std::find(list.begin(), list.end(), static_cast<int64_t>(value)) != list.end();
}

/// The index vectors of a gather or scatter, in row-major order. `nest` loops over them with
/// offsets into three arrays: 0 the slices (the gather's result, the scatter's updates), 1 the
/// indices, 2 the operand, along its batch axes.
class IndexVectors {
 public:
  IndexVectors(const GatherParams& params, const TensorView& operand, const TensorView& indices,
               const TensorView& slices)
      : data_(indices.data), dtype_(indices.dtype) {
    size_t axis = 0;
    for (size_t a = 0; a < slices.dims.size(); ++a) {
      if (contains(params.offset_axes, a)) continue;
      int64_t of_batch = 0;
      for (size_t k = 0; k < params.batch_axes.size(); ++k)
        if (params.index_batch_axes[k] == static_cast<int64_t>(axis))
          of_batch += operand.strides[static_cast<size_t>(params.batch_axes[k])];
      add_axis(nest, slices.dims[a], {slices.strides[a], indices.strides[axis], of_batch});
      ++axis;
    }
    merge(nest);
    component_stride_ = indices.strides.empty() ? 0 : indices.strides.back();
    for (int64_t a : params.start_index_map) {
      const auto k = static_cast<size_t>(a);
      components_.push_back(
          {a, operand.dims[k] - params.slice_sizes[k], operand.dims[k], operand.strides[k]});
    }
  }

  /// One component of the index vectors: the axis of the operand that it indexes, the last start of
  /// a window there, and the extent and stride of the axis.
  struct Component {
    int64_t axis, last_start, extent, stride;
  };
  const std::vector<Component>& components() const { return components_; }
  /// Returns component k of the vector at offset `at` of the indices.
  int64_t start(int64_t at, size_t k) const {
    return load_index(data_, dtype_, at + static_cast<int64_t>(k) * component_stride_);
  }
  const std::byte* data() const { return data_; }
  int64_t component_stride() const { return component_stride_; }
  /// Returns the offset in the operand of the window of a vector, whose start is clamped. `at` has
  /// the offsets of `nest`, or is the offset of the vector in the indices.
  int64_t clamped(const std::array<int64_t, 3>& at) const { return at[2] + clamped(at[1]); }
  int64_t clamped(int64_t at) const {
    int64_t offset = 0;
    for (size_t k = 0; k < components_.size(); ++k)
      offset +=
          std::clamp<int64_t>(start(at, k), 0, components_[k].last_start) * components_[k].stride;
    return offset;
  }
  /// True if the window of the vector at offset `at` is inside the operand, unclamped.
  bool in_range(int64_t at) const {
    for (size_t k = 0; k < components_.size(); ++k) {
      const int64_t s = start(at, k);
      if (s < 0 || s > components_[k].last_start) return false;
    }
    return true;
  }

  Nest<3> nest;

 private:
  const std::byte* data_;
  DType dtype_;
  int64_t component_stride_ = 0;
  std::vector<Component> components_;
};

/// Index vectors that are checked at a time, so that they are still in cache when they are used.
inline constexpr int64_t kIndexChunk = 1024;

/// True if all of n indices lie in [first, last], where `first` is 0 or above.
template <typename I>
bool all_in_range(const I* index, int64_t n, int64_t first, int64_t last) {
  using U = std::make_unsigned_t<I>;
  constexpr uint64_t kMost = std::numeric_limits<I>::max();
  if (last < first || static_cast<uint64_t>(first) > kMost) return n == 0;
  const auto low = static_cast<U>(first);
  const auto span = static_cast<U>(std::min(static_cast<uint64_t>(last), kMost) - low);
  int outside = 0;  // an index below `low` wraps to more than `span`
  for (int64_t i = 0; i < n; ++i)
    outside |= static_cast<U>(static_cast<U>(index[i]) - low) > span ? 1 : 0;
  return outside == 0;
}

/// True if 32 bits hold the offsets of kIndexChunk index vectors that are in range, where each
/// vector adds `step` elements to those before.
inline bool offsets_fit_in_32_bits(const std::vector<IndexVectors::Component>& components,
                                   int64_t step) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  int64_t last = std::abs(step) < kMost / kIndexChunk ? std::abs(step) * kIndexChunk : kMost;
  for (const IndexVectors::Component& c : components)
    last += c.stride >= 0 && c.last_start < kMost && c.stride < kMost ? c.last_start * c.stride
                                                                      : kMost;
  return step >= 0 && last < kMost;
}

/// Returns the offsets i * step + index[i] * stride of n <= kIndexChunk indices for which
/// offsets_fit_in_32_bits() is true. They are written to `offsets`, unless they are the indices
/// themselves, which are then returned.
template <typename I>
const int32_t* find_offsets(const I* index, int64_t n, int64_t step, int64_t stride,
                            int32_t* offsets) {
  if constexpr (std::is_same_v<I, int32_t>)
    if (step == 0 && stride == 1) return index;
  const auto by = static_cast<int32_t>(step), times = static_cast<int32_t>(stride);
  for (int32_t i = 0; i < static_cast<int32_t>(n); ++i)
    offsets[i] = i * by + static_cast<int32_t>(index[i]) * times;
  return offsets;
}

/// An axis of a window: the operand's axis, and the loop over it with strides in slices and
/// operand.
struct WindowAxis {
  int64_t axis;
  LoopAxis<2> loop;
};
/// Returns the axes of the operand's windows, not merged.
inline std::vector<WindowAxis> window_axes(const GatherParams& params, const TensorView& operand,
                                           const TensorView& slices) {
  std::vector<WindowAxis> axes;
  size_t next = 0;
  for (size_t a = 0; a < operand.dims.size(); ++a) {
    if (contains(params.collapsed_axes, a)) continue;
    const auto offset_axis = static_cast<size_t>(params.offset_axes[next++]);
    axes.push_back({static_cast<int64_t>(a),
                    {params.slice_sizes[a], {slices.strides[offset_axis], operand.strides[a]}}});
  }
  return axes;
}

}  // namespace stow::cpu::kernels
