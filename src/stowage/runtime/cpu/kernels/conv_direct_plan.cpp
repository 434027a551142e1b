#include <algorithm>

#include "stowage/base/bytes.h"
#include "stowage/runtime/cpu/kernels/conv_direct.h"
#include "stowage/runtime/cpu/kernels/gemm_plan.h"

namespace stow::cpu {
namespace {

constexpr int64_t kStripBytes = 64 << 10;  // that stay in a near cache with a panel of the kernel
constexpr int64_t kMaxRows = 8;            // of windows a task: rows of the strip serve several
constexpr int64_t kLeastWidth = 4;         // windows of a row that fill a micro-kernel

bool is_small_float(DType t) { return t == DType::kF32 || t == DType::kBF16 || t == DType::kF16; }
int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t reach(const ConvAxis& a, int64_t windows) {
  return (windows - 1) * a.stride + (a.taps - 1) * a.dilation + 1;
}

}  // namespace

bool is_direct(const ConvParams& p, const TensorView& x, const TensorView& k, const TensorView& y) {
  const size_t spatial = x.dims.size() - 2;
  if (!is_small_float(x.dtype) || !is_small_float(k.dtype) || !is_small_float(y.dtype))
    return false;
  if (spatial < 1 || spatial > 3 || p.batch_groups != 1) return false;
  bool plain = true;  // each window is one element: a product of what lies there
  int64_t taps = 1, windows = 1;
  for (size_t a = 0; a < spatial; ++a) {
    if (p.lhs_dilation[a] != 1) return false;
    taps *= k.dims[a + 2];
    windows *= y.dims[a + 2];
    plain = plain && k.dims[a + 2] == 1 && p.low[a] == 0 && p.high[a] == 0;
  }
  // The gradient of a kernel has few windows of many places: a product.
  return !plain && windows >= taps && y.dims.back() >= kLeastWidth;
}

DirectConv plan_direct(const ConvParams& p, const TensorView& x, const TensorView& k,
                       const TensorView& y, int threads) {
  DirectConv c;
  c.x = x.dtype, c.k = k.dtype, c.y = y.dtype;
  c.images = y.dims[0], c.groups = p.feature_groups;
  c.channels = k.dims[1], c.features = k.dims[0] / c.groups;
  c.x_image = x.strides[0], c.y_image = y.strides[0];
  c.x_channel = x.strides[1], c.k_channel = k.strides[1];
  c.k_feature = k.strides[0], c.y_feature = y.strides[1];
  c.x_group = c.channels * c.x_channel, c.k_group = c.features * c.k_feature;
  c.y_group = c.features * c.y_feature;
  const size_t spatial = x.dims.size() - 2, missing = 3 - spatial;
  for (size_t a = 0; a < spatial; ++a)
    c.axes[missing + a] = {x.dims[a + 2],    k.dims[a + 2],    y.dims[a + 2],
                           p.strides[a],     p.rhs_dilation[a], p.low[a],
                           x.strides[a + 2], k.strides[a + 2], y.strides[a + 2]};
  const ConvAxis &h = c.axes[1], &w = c.axes[2];
  const auto bytes = [&](int64_t rows, int64_t width) {
    return c.axes[0].taps * reach(h, rows) * reach(w, width) * c.channels * int64_t{sizeof(float)};
  };
  // The widest and then the highest block whose strip stays near.
  int64_t pieces = 1;
  while (bytes(1, ceil_div(w.out, pieces)) > kStripBytes && ceil_div(w.out, pieces) > kGemmRowUnit)
    ++pieces;
  c.block_w = ceil_div(w.out, pieces);
  while (c.block_h < std::min(h.out, kMaxRows) && bytes(c.block_h + 1, c.block_w) <= kStripBytes)
    ++c.block_h;
  c.strip_rows = reach(h, c.block_h), c.strip_width = reach(w, c.block_w);
  c.tasks = c.images * c.groups * c.axes[0].out * ceil_div(h.out, c.block_h) *
            ceil_div(w.out, c.block_w);
  const double work = double(y.elems()) * double(c.depth());
  if (work < 200e3) threads = 1;  // under some 5 us a second thread costs more than it brings
  c.threads = static_cast<int>(std::min<int64_t>(std::max(threads, 1), c.tasks));
  // Rows of whole vectors that are evenly spaced are read as they lie.
  bool in_place = k.dtype == DType::kF32 && c.k_feature == 1 && c.features % 16 == 0;
  int64_t stride = c.channels * c.k_channel;
  for (size_t a = 3; a-- > 0; stride *= c.axes[a].taps)
    in_place = in_place && (c.axes[a].taps == 1 || c.axes[a].k_stride == stride);
  if (!in_place)
    c.panels_bytes = align_up(c.groups * c.depth() * int64_t{sizeof(float)} *
                                  align_up(c.features, kGemmColUnit),
                              64);
  c.strip_bytes = align_up(bytes(c.block_h, c.block_w), 64);
  return c;
}

}  // namespace stow::cpu
