// Direct convolutions: they read each window in place, without an operand of windows for a product.
// Not the op: convolution.cpp chooses the method, and splits an lhs dilation into several
// convolutions.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/params.h"
#include "stowage/runtime/tensor_view.h"

namespace stow::cpu {

/// One spatial axis.
struct ConvAxis {
  int64_t in = 1, taps = 1, out = 1;  // extents of x, of the kernel and of y
  int64_t stride = 1, dilation = 1, low = 0;  // of windows; of taps; padding before the axis
  int64_t x_stride = 0, k_stride = 0, y_stride = 0;  // in elements
};

/// A convolution of f32, bf16 or f16 with no holes between elements and one to three spatial axes.
///
/// A task computes the windows of a few rows of one image and group. It copies the elements that
/// they read to a strip, as f32 with the channels innermost and zeros for padding. A micro-kernel
/// reads rows of windows in the strip and a panel of the kernel. Sums are as gemm.h says, with k =
/// (tap, channel).
struct DirectConv {
  DType x, k, y;
  int64_t images = 1, groups = 1, channels = 1, features = 1;  // channels and features of a group
  int64_t x_image = 0, y_image = 0;                            // strides, as in ConvAxis
  int64_t x_channel = 0, k_channel = 0, k_feature = 0, y_feature = 0;
  int64_t x_group = 0, k_group = 0, y_group = 0;
  std::array<ConvAxis, 3> axes;  // missing axes come first, with extents of 1

  int64_t block_h = 1, block_w = 1;  // windows of a task along the last two axes
  int64_t strip_rows = 1, strip_width = 1;  // extents of a strip along the last two axes
  int64_t tasks = 0;
  int threads = 1;                   // threads that get work
  int64_t panels_bytes = 0;          // bytes of the kernel in panels; 0 if it is read in place
  int64_t strip_bytes = 0;           // bytes of the strip of each thread

  int64_t n_taps() const { return axes[0].taps * axes[1].taps * axes[2].taps; }
  int64_t depth() const { return n_taps() * channels; }
  int64_t scratch_bytes() const { return panels_bytes + strip_bytes * threads; }
};

/// True if a convolution is computed directly. The views are x [N,C,S...], k [O,C,K...] and y
/// [N,O,T...]. The result depends on shapes, strides and dtypes alone.
bool is_direct(const ConvParams& params, const TensorView& x, const TensorView& k,
               const TensorView& y);
DirectConv plan_direct(const ConvParams& params, const TensorView& x, const TensorView& k,
                       const TensorView& y, int threads);

/// Computes the convolution. `scratch` is aligned to 64 bytes and has conv.scratch_bytes().
void run_direct(const DirectConv& conv, const void* x, const void* k, void* y, void* scratch);

}  // namespace stow::cpu
