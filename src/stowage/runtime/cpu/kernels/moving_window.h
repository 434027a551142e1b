// MovingWindow: a dynamic_slice or dynamic_update_slice of few bytes, with its loops planned once.
// Not the kernel of large windows, which uses threads; that is in movement.cpp.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "stowage/runtime/tensor_view.h"

namespace stow::cpu {

/// A loop may run a small op thousands of times. Each call only reads the start indices, computes
/// an offset and copies runs of bytes.
class MovingWindow {
 public:
  /// `whole` is the array of the window, `part` the slice or the update, and `starts` are the
  /// scalar start indices, one for each axis. Returns nothing if the window is large or is not a
  /// nest of at most two loops over contiguous runs.
  static std::optional<MovingWindow> make(const TensorView& whole, const TensorView& part,
                                          std::span<const TensorView> starts);

  /// read() copies the window at these start indices, clamped, from `whole` to `part`, write()
  /// back.
  void read(const std::byte* whole, std::byte* part, const std::byte* const* starts) const;
  void write(std::byte* whole, const std::byte* part, const std::byte* const* starts) const;

 private:
  struct Axis {
    int64_t extent, whole_bytes, part_bytes;  // extent; strides in bytes
  };
  struct Start {
    DType dtype;
    int64_t last, whole_bytes;  // the largest start; the stride of `whole` in bytes
  };
  int64_t offset(const std::byte* const* starts) const;
  template <typename Copy>
  void for_each_run(Copy&& copy) const;

  std::vector<Start> starts_;
  std::vector<Axis> axes_;  // outermost first, always two
  int64_t run_bytes_ = 0;
};

}  // namespace stow::cpu
