// One axis of a sliding window over padded and dilated elements, as XLA counts it.
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

/// How many windows there are over `extent` elements. Throws TraceError naming `axis` where a
/// number is out of its range.
int64_t n_windows(const InferContext& c, int64_t extent, const WindowAxis& w, size_t axis);

/// The axis that undoes w: over the `n_out` windows, stretched by the stride, with the window
/// turned around, it gives `extent` results, each the sum of what its element went into.
WindowAxis transposed(const WindowAxis& w, int64_t extent, int64_t n_out);

}  // namespace stow::ops
