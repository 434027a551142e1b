// Convolutions. Windows over elements with holes between them are taken apart by phases, each a
// convolution without holes by some places of the kernel. One whose windows are single elements, or
// whose sums are long and windows few, is a product: a window over a padded lhs is a set of
// strides, which the packed product takes as they are. The others read their windows directly.
#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "stowage/base/bytes.h"
#include "stowage/runtime/cpu/kernels/conv_direct.h"
#include "stowage/runtime/cpu/kernels/gemm.h"
#include "stowage/runtime/cpu/kernels/op_families.h"

namespace stow::cpu::kernels {
namespace {

// Every step-th element of an axis from `first` on, n of them.
void take_each(TensorView& view, size_t axis, int64_t first, int64_t step, int64_t n) {
  if (view.data != nullptr) view.data += first * view.strides[axis] * dtype_bytes(view.dtype);
  view.strides[axis] *= step;
  view.dims[axis] = n;
}

// Calls visit(params, kernel, result) for each phase: results that are a multiple of some step
// apart on each axis, of the places of the kernel that fall on elements there. A phase without
// places has a kernel without elements.
template <typename Visit>
void for_each_phase(const ConvParams& p, const TensorView& x, const TensorView& k,
                    const TensorView& y, size_t spatial_axis, const Visit& visit) {
  if (spatial_axis == p.strides.size()) return visit(p, k, y);
  const size_t s = spatial_axis, a = s + 2;
  const int64_t holes = p.lhs_dilation[s], stride = p.strides[s], dilation = p.rhs_dilation[s];
  if (holes == 1) return for_each_phase(p, x, k, y, s + 1, visit);
  const int64_t step = holes / std::gcd(holes, stride),
                tap_step = holes / std::gcd(holes, dilation);
  for (int64_t first = 0; first < std::min(step, y.dims[a]); ++first) {
    // The first place that falls on an element, if one does.
    const auto place = [&](int64_t tap) { return first * stride + tap * dilation - p.low[s]; };
    int64_t tap = 0;
    while (tap < tap_step && place(tap) % holes != 0) ++tap;
    const int64_t taps = tap < std::min(tap_step, k.dims[a])
                             ? (k.dims[a] - tap + tap_step - 1) / tap_step
                             : 0;
    ConvParams phase = p;
    TensorView kernel = k, result = y;
    take_each(result, a, first, step, (y.dims[a] - first + step - 1) / step);
    take_each(kernel, a, taps > 0 ? tap : 0, tap_step, taps);
    phase.lhs_dilation[s] = 1;
    phase.strides[s] = step * stride / holes;
    phase.rhs_dilation[s] = tap_step * dilation / holes;
    phase.low[s] = taps > 0 ? -place(tap) / holes : 0;
    const int64_t reach = (result.dims[a] - 1) * phase.strides[s] +
                          std::max<int64_t>(taps - 1, 0) * phase.rhs_dilation[s] + 1;
    phase.high[s] = reach - x.dims[a] - phase.low[s];
    for_each_phase(phase, x, kernel, result, s + 1, visit);
  }
}

struct Padded {
  TensorView lhs;       // what the product reads; null data until it is made
  PadParams params;     // how it is made from the operand
  bool copied = false;  // it lies in scratch
  int64_t bytes = 0;    // of scratch
};

// A copy's axes lie in the order of the operand's.
Padded padded(const ConvParams& p, const TensorView& x) {
  Padded result{x, {{0, 0}, {0, 0}, Dims(x.dims.size(), 0)}, false, 0};
  for (size_t a = 2; a < x.dims.size(); ++a) {
    const int64_t low = p.low[a - 2], high = p.high[a - 2];
    result.params.low.push_back(low);
    result.params.high.push_back(high);
    result.lhs.dims[a] += low + high;
    result.copied = result.copied || low > 0 || high > 0;
  }
  if (result.copied) {
    std::vector<size_t> order(x.dims.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return std::abs(x.strides[a]) < std::abs(x.strides[b]);
    });
    int64_t stride = 1;
    for (size_t a : order) {
      result.lhs.strides[a] = stride;
      stride *= result.lhs.dims[a];
    }
    result.bytes = align_up(result.lhs.elems() * dtype_bytes(x.dtype), 64);
  }
  return result;
}

// [N,C,S...] x [O,C/groups,K...] -> [N/b,O,T...]: rows are (n, t), columns features of a group,
// the sum runs over (place in the kernel, channel of the group).
GemmSpec product(const ConvParams& p, const TensorView& x, const TensorView& k,
                 const TensorView& y) {
  GemmSpec s{x.dtype, k.dtype, y.dtype, {}, {}, {}, {}, false};
  const int64_t groups = p.feature_groups * p.batch_groups;
  const int64_t features = k.dims[0] / groups, channels = k.dims[1];
  const int64_t group_stride =
      p.batch_groups > 1 ? y.dims[0] * x.strides[0] : channels * x.strides[1];
  s.batch.push_back({groups, group_stride, features * k.strides[0], features * y.strides[1]});
  s.m.push_back({y.dims[0], x.strides[0], 0, y.strides[0]});
  s.n.push_back({features, 0, k.strides[0], y.strides[1]});
  for (size_t a = 2; a < x.dims.size(); ++a) {
    s.m.push_back({y.dims[a], p.strides[a - 2] * x.strides[a], 0, y.strides[a]});
    s.k.push_back({k.dims[a], p.rhs_dilation[a - 2] * x.strides[a], k.strides[a], 0});
  }
  s.k.push_back({channels, x.strides[1], k.strides[1], 0});
  // Rows may come in any order: as they lie.
  std::stable_sort(s.m.begin(), s.m.end(), [](const GemmDim& a, const GemmDim& b) {
    return std::abs(a.a_stride) > std::abs(b.a_stride);
  });
  return s;
}

int64_t phase_scratch_bytes(const ConvParams& p, const TensorView& x, const TensorView& k,
                            const TensorView& y, int threads) {
  if (k.elems() == 0 || y.elems() == 0) return 0;
  if (is_direct(p, x, k, y)) return plan_direct(p, x, k, y, threads).scratch_bytes();
  const Padded lhs = padded(p, x);
  return lhs.bytes + gemm_workspace_bytes(product(p, lhs.lhs, k, y), threads);
}

void run_phase(const ConvParams& p, const TensorView& x, const TensorView& k, const TensorView& y,
               void* scratch, int threads) {
  const std::byte zero[8] = {};
  if (y.elems() == 0) return;
  if (k.elems() == 0) return fill(y, zero, threads);
  if (is_direct(p, x, k, y))
    return run_direct(plan_direct(p, x, k, y, threads), x.data, k.data, y.data, scratch);
  Padded lhs = padded(p, x);
  auto* workspace = static_cast<std::byte*>(scratch);
  if (lhs.copied) {
    lhs.lhs.data = workspace;
    const TensorView operands[] = {x, {const_cast<std::byte*>(zero), x.dtype, {}, {}}};
    pad(lhs.params, operands, {&lhs.lhs, 1}, threads);
  } else {
    Dims starts;
    for (int64_t low : lhs.params.low) starts.push_back(-low);
    lhs.lhs = window(x, starts, lhs.lhs.dims);
  }
  gemm(product(p, lhs.lhs, k, y), lhs.lhs.data, k.data, y.data, workspace + lhs.bytes, threads);
}

}  // namespace

int64_t convolution_scratch_bytes(const ConvParams& params, Views in, Views out, int threads) {
  int64_t bytes = 0;
  if (in[0].elems() == 0) return 0;
  for_each_phase(params, in[0], in[1], out[0], 0,
                 [&](const ConvParams& p, const TensorView& k, const TensorView& y) {
                   bytes = std::max(bytes, phase_scratch_bytes(p, in[0], k, y, threads));
                 });
  return bytes;
}

void convolution(const ConvParams& params, Views in, Views out, void* scratch, int threads) {
  const std::byte zero[8] = {};
  if (out[0].elems() == 0) return;
  if (in[0].elems() == 0) return fill(out[0], zero, threads);
  for_each_phase(params, in[0], in[1], out[0], 0,
                 [&](const ConvParams& p, const TensorView& k, const TensorView& y) {
                   run_phase(p, in[0], k, y, scratch, threads);
                 });
}

}  // namespace stow::cpu::kernels
