#include "stowage/ops/window_axis.h"

namespace stow::ops {
namespace {

// n elements with dilation - 1 holes between neighbours.
int64_t dilated(int64_t n, int64_t dilation) { return n == 0 ? 0 : (n - 1) * dilation + 1; }

}  // namespace

int64_t n_windows(const InferContext& c, int64_t extent, const WindowAxis& w, size_t axis) {
  if (w.is_trivial()) return extent;
  constexpr int64_t kMost = int64_t{1} << 31;
  const auto check = [&](int64_t value, int64_t least, std::string_view what) {
    if (value < least || value > kMost) c.error("{} {} of axis {}", what, value, axis);
  };
  check(w.size, 1, "window size");
  check(w.stride, 1, "stride");
  check(w.low, -kMost, "low padding");
  check(w.high, -kMost, "high padding");
  check(w.base_dilation, 1, "base dilation");
  check(w.window_dilation, 1, "window dilation");
  check(extent, 0, "extent");
  const int64_t room = dilated(extent, w.base_dilation) + w.low + w.high;
  const int64_t window = dilated(w.size, w.window_dilation);
  return room < window ? 0 : (room - window) / w.stride + 1;
}

WindowAxis transposed(const WindowAxis& w, int64_t extent, int64_t n_out) {
  const int64_t reach = (w.size - 1) * w.window_dilation, low = reach - w.low;
  const int64_t high =
      (extent - 1) * w.base_dilation + reach + 1 - dilated(n_out, w.stride) - low;
  return {w.size, w.base_dilation, low, high, w.stride, w.window_dilation};
}

}  // namespace stow::ops
