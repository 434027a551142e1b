// MovingWindow: dynamic_slice or dynamic_update_slice of few bytes, its loops settled beforehand.
// Not the kernel of large windows, which go over threads; see movement.cpp.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "stowage/runtime/tensor_view.h"

namespace stow::cpu {

/// A loop around a small one makes thousands of these calls: each only reads the start indices, adds up
/// an offset and copies runs of bytes.
class MovingWindow {
 public:
  /// `whole` is what the window lies in, `part` what is read out of it or written into it, `starts` the
  /// scalars of start indices, one an axis. Nothing where the window is large or has many runs' axes.
  static std::optional<MovingWindow> make(const TensorView& whole, const TensorView& part,
                                          std::span<const TensorView> starts);

  /// Copies the window at these start indices, clamped, out of `whole` or into it.
  void read(const std::byte* whole, std::byte* part, const std::byte* const* starts) const;
  void write(std::byte* whole, const std::byte* part, const std::byte* const* starts) const;

 private:
  struct Axis {
    int64_t extent, whole_bytes, part_bytes;  // strides
  };
  struct Start {
    DType dtype;
    int64_t last, whole_bytes;  // the largest start, and what a step is
  };
  int64_t offset(const std::byte* const* starts) const;
  template <typename Copy>
  void for_each_run(Copy&& copy) const;

  std::vector<Start> starts_;
  std::vector<Axis> axes_;  // the outermost first, two at most
  int64_t run_bytes_ = 0;
};

}  // namespace stow::cpu
