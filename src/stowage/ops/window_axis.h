// One axis of a sliding window over padded and dilated elements, with XLA's conventions.
// Not an op; shared by the rules of windowed reductions and convolutions.
#pragma once

#include "stowage/ops/rule.h"

namespace stow::ops {

struct WindowAxis {
  int64_t size = 1, stride = 1, low = 0, high = 0, base_dilation = 1, window_dilation = 1;

  bool is_trivial() const {
    return size == 1 && stride == 1 && low == 0 && high == 0 && base_dilation == 1;
  }
};

/// Number of windows over `extent` elements. Throws TraceError naming `axis` if a field of `w` is
/// out of range.
int64_t n_windows(const InferContext& c, int64_t extent, const WindowAxis& w, size_t axis);

/// The window axis of the transposed operation: applied to the `n_out` window results with the
/// window reversed, it gives `extent` sums, each over the windows that its element was part of.
WindowAxis transposed(const WindowAxis& w, int64_t extent, int64_t n_out);

}  // namespace stow::ops
