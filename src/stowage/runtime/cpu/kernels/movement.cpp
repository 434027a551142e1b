// Ops that only move elements: each is one or a few strided copies.
#include <algorithm>

#include "stowage/runtime/cpu/kernels/op_families.h"
#include "stowage/runtime/cpu/kernels/op_kernels.h"
#include "stowage/runtime/cpu/kernels/op_types.h"

namespace stow::cpu::kernels {
namespace {

Dims clamped_starts(Views in, size_t first, const Dims& extents, const Dims& sizes) {
  Dims starts(extents.size());
  for (size_t a = 0; a < extents.size(); ++a) {
    const TensorView& start = in[first + a];
    starts[a] =
        std::clamp<int64_t>(load_index(start.data, start.dtype, 0), 0, extents[a] - sizes[a]);
  }
  return starts;
}

int64_t divide_up(int64_t a, int64_t b) {
  return a <= 0 ? 0 : (a + b - 1) / b;
}

// Sets what of `out` lies outside of [low, low + inside) on any axis.
void fill_border(const TensorView& out, const Dims& low, const Dims& inside,
                 const std::byte* element, int threads) {
  Dims starts(out.dims.size(), 0), sizes(out.dims);
  for (size_t a = 0; a < out.dims.size(); ++a) {
    const int64_t end = low[a] + inside[a];
    sizes[a] = low[a];
    fill(window(out, starts, sizes), element, threads);
    starts[a] = end;
    sizes[a] = out.dims[a] - end;
    fill(window(out, starts, sizes), element, threads);
    starts[a] = low[a];
    sizes[a] = inside[a];
  }
}

}  // namespace

void broadcast(const BroadcastParams& params, Views in, Views out, int threads) {
  TensorView from = in[0];
  from.dims = out[0].dims;
  from.strides.assign(out[0].dims.size(), 0);
  for (size_t a = 0; a < params.axes.size(); ++a)
    if (in[0].dims[a] != 1) from.strides[static_cast<size_t>(params.axes[a])] = in[0].strides[a];
  copy(from, out[0], threads);
}

void transpose(const AxesParams& params, Views in, Views out, int threads) {
  TensorView from = in[0];
  for (size_t a = 0; a < params.axes.size(); ++a) {
    from.dims[a] = in[0].dims[static_cast<size_t>(params.axes[a])];
    from.strides[a] = in[0].strides[static_cast<size_t>(params.axes[a])];
  }
  copy(from, out[0], threads);
}

void slice(const SliceParams& params, Views in, Views out, int threads) {
  if (out[0].elems() == 0) return;
  TensorView from = window(in[0], params.start, out[0].dims);
  for (size_t a = 0; a < from.strides.size(); ++a) from.strides[a] *= params.stride[a];
  copy(from, out[0], threads);
}

void reverse(const AxesParams& params, Views in, Views out, int threads) {
  if (out[0].elems() == 0) return;
  Dims starts(in[0].dims.size(), 0);
  for (int64_t axis : params.axes)
    starts[static_cast<size_t>(axis)] = in[0].dims[static_cast<size_t>(axis)] - 1;
  TensorView from = window(in[0], starts, in[0].dims);
  for (int64_t axis : params.axes) from.strides[static_cast<size_t>(axis)] *= -1;
  copy(from, out[0], threads);
}

void pad(const PadParams& params, Views in, Views out, int threads) {
  const TensorView &x = in[0], &y = out[0];
  if (y.elems() == 0) return;
  // Operand elements [first, last) of an axis fall into the result, from `to` on.
  const size_t rank = x.dims.size();
  Dims first(rank), sizes(rank), to(rank);
  bool dense = true, empty = false;
  for (size_t a = 0; a < rank; ++a) {
    const int64_t step = params.interior[a] + 1, low = params.low[a];
    first[a] = std::min(divide_up(-low, step), x.dims[a]);
    const int64_t last = std::clamp(divide_up(y.dims[a] - low, step), first[a], x.dims[a]);
    sizes[a] = last - first[a];
    to[a] = low + first[a] * step;
    dense = dense && step == 1;
    empty = empty || sizes[a] == 0;
  }
  if (empty || !dense) fill(y, in[1].data, threads);
  if (empty) return;
  if (dense) fill_border(y, to, sizes, in[1].data, threads);
  TensorView inside = window(y, to, sizes);
  for (size_t a = 0; a < rank; ++a) inside.strides[a] *= params.interior[a] + 1;
  copy(window(x, first, sizes), inside, threads);
}

void concatenate(const AxisParams& params, Views in, Views out, int threads) {
  Dims starts(out[0].dims.size(), 0);
  for (const TensorView& part : in) {
    if (part.elems() != 0) copy(part, window(out[0], starts, part.dims), threads);
    starts[static_cast<size_t>(params.axis)] += part.dims[static_cast<size_t>(params.axis)];
  }
}

void dynamic_slice(Views in, Views out, int threads) {
  if (out[0].elems() == 0) return;
  const Dims starts = clamped_starts(in, 1, in[0].dims, out[0].dims);
  copy(window(in[0], starts, out[0].dims), out[0], threads);
}

void dynamic_update_slice(Views in, Views out, int threads) {
  copy(in[0], out[0], threads);  // nothing to do when they are one
  if (in[1].elems() == 0) return;
  const Dims starts = clamped_starts(in, 2, in[0].dims, in[1].dims);
  copy(in[1], window(out[0], starts, in[1].dims), threads);
}

}  // namespace stow::cpu::kernels
