#include "stowage/runtime/cpu/kernels/moving_window.h"

#include <algorithm>
#include <cstring>

#include "stowage/runtime/cpu/kernels/op_types.h"

namespace stow::cpu {
namespace {

// More than this may be shared out among threads.
constexpr int64_t kMostBytes = 32 << 10;

void copy_run(std::byte* to, const std::byte* from, int64_t bytes) {
  std::memmove(to, from, static_cast<size_t>(bytes));
}

}  // namespace

std::optional<MovingWindow> MovingWindow::make(const TensorView& whole, const TensorView& part,
                                               std::span<const TensorView> starts) {
  const int64_t element = dtype_bytes(part.dtype);
  if (part.elems() * element > kMostBytes) return std::nullopt;
  MovingWindow window;
  window.run_bytes_ = part.elems() == 0 ? 0 : element;
  bool in_run = true;
  for (size_t a = part.dims.size(); a-- > 0;) {
    const Axis axis{part.dims[a], whole.strides[a] * element, part.strides[a] * element};
    window.starts_.push_back({starts[a].dtype, whole.dims[a] - axis.extent, axis.whole_bytes});
    if (axis.extent == 1) continue;
    in_run &= axis.whole_bytes == window.run_bytes_ && axis.part_bytes == window.run_bytes_;
    if (in_run)
      window.run_bytes_ *= axis.extent;
    else
      window.axes_.push_back(axis);
  }
  if (window.axes_.size() > 2) return std::nullopt;
  std::reverse(window.starts_.begin(), window.starts_.end());
  std::reverse(window.axes_.begin(), window.axes_.end());
  while (window.axes_.size() < 2) window.axes_.insert(window.axes_.begin(), Axis{1, 0, 0});
  return window;
}

int64_t MovingWindow::offset(const std::byte* const* starts) const {
  int64_t bytes = 0;
  for (size_t a = 0; a < starts_.size(); ++a) {
    const Start& s = starts_[a];
    bytes +=
        std::clamp<int64_t>(kernels::load_index(starts[a], s.dtype, 0), 0, s.last) * s.whole_bytes;
  }
  return bytes;
}

template <typename Copy>
void MovingWindow::for_each_run(Copy&& copy) const {
  if (run_bytes_ == 0) return;
  for (int64_t i = 0; i < axes_[0].extent; ++i)
    for (int64_t j = 0; j < axes_[1].extent; ++j)
      copy(i * axes_[0].whole_bytes + j * axes_[1].whole_bytes,
           i * axes_[0].part_bytes + j * axes_[1].part_bytes);
}

void MovingWindow::read(const std::byte* whole, std::byte* part,
                        const std::byte* const* starts) const {
  whole += offset(starts);
  for_each_run([&](int64_t from, int64_t to) { copy_run(part + to, whole + from, run_bytes_); });
}

void MovingWindow::write(std::byte* whole, const std::byte* part,
                         const std::byte* const* starts) const {
  whole += offset(starts);
  for_each_run([&](int64_t to, int64_t from) { copy_run(whole + to, part + from, run_bytes_); });
}

}  // namespace stow::cpu
