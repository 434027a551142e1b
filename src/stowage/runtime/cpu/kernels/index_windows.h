// The loops of XLA's general gather and scatter: over index vectors, and over a window of each.
// Not the kernels; shared by gather.cpp and scatter.cpp.
#pragma once

#include <algorithm>

#include "stowage/base/inside.h"
#include "stowage/runtime/cpu/kernels/op_families.h"
#include "stowage/runtime/cpu/kernels/op_types.h"

namespace stow::cpu::kernels {

inline bool contains(const Dims& list, size_t value) {
  return std::find(list.begin(), list.end(), static_cast<int64_t>(value)) != list.end();
}

/// Index vectors in row-major order. Offsets: 0 the array of slices (the gather's result, the
/// scatter's updates), 1 the indices, 2 the operand, by its batch axes.
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

  struct Component {
    int64_t axis, last_start, extent, stride;
  };
  const std::vector<Component>& components() const { return components_; }
  /// Component k of the vector at offset `at` of the indices.
  int64_t start(int64_t at, size_t k) const {
    return load_index(data_, dtype_, at + static_cast<int64_t>(k) * component_stride_);
  }
  const std::byte* data() const { return data_; }
  int64_t component_stride() const { return component_stride_; }
  /// Offset into the operand of the window of the vector at `at`, its start clamped.
  int64_t clamped(const std::array<int64_t, 3>& at) const { return at[2] + clamped(at[1]); }
  int64_t clamped(int64_t at) const {
    int64_t offset = 0;
    for (size_t k = 0; k < components_.size(); ++k)
      offset +=
          std::clamp<int64_t>(start(at, k), 0, components_[k].last_start) * components_[k].stride;
    return offset;
  }
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

/// Axes of a window, strides in slices and operand; `axis` is the operand's, not merged yet.
struct WindowAxis {
  int64_t axis;
  LoopAxis<2> loop;
};
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
