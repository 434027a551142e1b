// Convolution as one product: a window over a padded lhs is a set of strides, which the packed
// product takes as they are. Scratch: the lhs padded and stretched, where it is not used as it
// lies.
#include "stowage/base/bytes.h"
#include "stowage/runtime/cpu/kernels/gemm.h"
#include "stowage/runtime/cpu/kernels/op_families.h"

namespace stow::cpu::kernels {
namespace {

struct Padded {
  TensorView lhs;       // what the product reads; null data until it is made
  PadParams params;     // how it is made from the operand
  bool copied = false;  // it lies in scratch
  int64_t bytes = 0;    // of scratch
};

Padded padded(const ConvParams& p, const TensorView& x) {
  Padded result{x, {{0, 0}, {0, 0}, {0, 0}}, false, 0};
  for (size_t a = 2; a < x.dims.size(); ++a) {
    const int64_t low = p.low[a - 2], high = p.high[a - 2], dilation = p.lhs_dilation[a - 2];
    result.params.low.push_back(low);
    result.params.high.push_back(high);
    result.params.interior.push_back(dilation - 1);
    result.lhs.dims[a] += (x.dims[a] - 1) * (dilation - 1) + low + high;
    result.copied = result.copied || low > 0 || high > 0 || dilation > 1;
  }
  if (result.copied) {
    result.lhs.strides = contiguous_strides(Shape(result.lhs.dims));
    result.bytes = align_up(result.lhs.elems() * dtype_bytes(x.dtype), 64);
  }
  return result;
}

// [N,C,S...] x [O,C/groups,K...] -> [N/b,O,T...]: rows are (n, t), columns features of a group,
// the sum runs over (channel of the group, place in the kernel).
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
  s.k.push_back({channels, x.strides[1], k.strides[1], 0});
  for (size_t a = 2; a < x.dims.size(); ++a) {
    s.m.push_back({y.dims[a], p.strides[a - 2] * x.strides[a], 0, y.strides[a]});
    s.k.push_back({k.dims[a], p.rhs_dilation[a - 2] * x.strides[a], k.strides[a], 0});
  }
  return s;
}

bool is_empty(const TensorView& x, const TensorView& y) {
  return x.elems() == 0 || y.elems() == 0;
}

}  // namespace

int64_t convolution_scratch_bytes(const ConvParams& params, Views in, Views out, int threads) {
  if (is_empty(in[0], out[0])) return 0;
  const Padded lhs = padded(params, in[0]);
  return lhs.bytes + gemm_workspace_bytes(product(params, lhs.lhs, in[1], out[0]), threads);
}

void convolution(const ConvParams& params, Views in, Views out, void* scratch, int threads) {
  const TensorView &x = in[0], &y = out[0];
  const std::byte zero[8] = {};
  if (y.elems() == 0) return;
  if (x.elems() == 0) return fill(y, zero, threads);
  Padded lhs = padded(params, x);
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
  gemm(product(params, lhs.lhs, in[1], y), lhs.lhs.data, in[1].data, y.data, workspace + lhs.bytes,
       threads);
}

}  // namespace stow::cpu::kernels
