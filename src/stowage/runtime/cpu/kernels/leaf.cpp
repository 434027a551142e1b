#include "stowage/base/bytes.h"
#include "stowage/runtime/cpu/kernels/op_families.h"
#include "stowage/runtime/cpu/kernels/op_kernels.h"
#include "stowage/runtime/cpu/kernels/op_types.h"
#include "stowage/runtime/cpu/kernels/parallel_for.h"

namespace stow::cpu::kernels {
namespace {

// A count as T, rounded once: f32 by an int64, half types by a float that rounds to odd.
template <typename T>
T from_count(int64_t count) {
  if constexpr (kIsHalf<T>) {
    // Bits below f32's last are folded into it, so that rounding again cannot see a false tie.
    int shift = 0;
    uint64_t magnitude = static_cast<uint64_t>(count);
    for (; magnitude >> shift >= uint64_t{1} << 24; ++shift) {
    }
    const bool lost = (magnitude & ((uint64_t{1} << shift) - 1)) != 0;
    magnitude = (magnitude >> shift | (lost ? 1 : 0)) << shift;
    T result;
    narrow(static_cast<float>(magnitude), result);
    return result;
  } else if constexpr (std::is_same_v<T, Bool>) {
    return {static_cast<uint8_t>(count != 0)};
  } else {
    return static_cast<T>(count);
  }
}

// The only axis of the result with more than one element, or that of the counts.
bool is_line(const IotaParams& params, const TensorView& out) {
  for (size_t a = 0; a < out.dims.size(); ++a)
    if (static_cast<int64_t>(a) != params.axis && out.dims[a] != 1) return false;
  return true;
}

}  // namespace

void constant(const ConstantParams& params, Views out, int threads) {
  if (params.is_splat()) return fill(out[0], params.data.data(), threads);
  Nest<2> nest;
  const Dims dense = contiguous_strides(Shape(out[0].dims));
  for (size_t a = 0; a < dense.size(); ++a)
    add_axis(nest, out[0].dims[a], {out[0].strides[a], dense[a]});
  copy_nest(out[0].data, params.data.data(), std::move(nest), dtype_bytes(out[0].dtype), threads);
}

int64_t iota_scratch_bytes(const IotaParams& params, Views out) {
  if (out[0].elems() == 0 || is_line(params, out[0])) return 0;
  return align_up(out[0].dims[static_cast<size_t>(params.axis)] * dtype_bytes(out[0].dtype), 64);
}

void iota(const IotaParams& params, Views out, void* scratch, int threads) {
  const TensorView& y = out[0];
  if (y.elems() == 0) return;
  const auto axis = static_cast<size_t>(params.axis);
  const bool line = is_line(params, y);
  with_dtype(y.dtype, [&](auto t) {
    using T = decltype(t);
    T* to = line ? reinterpret_cast<T*>(y.data) : static_cast<T*>(scratch);
    const int64_t stride = line ? y.strides[axis] : 1;
    parallel_for(threads, y.dims[axis], kBytesPerThread / int64_t{sizeof(T)},
                 [&](int64_t begin, int64_t end, int) {
                   for (int64_t i = begin; i < end; ++i) to[i * stride] = from_count<T>(i);
                 });
  });
  if (line) return;
  TensorView table = y;
  table.data = static_cast<std::byte*>(scratch);
  table.strides.assign(y.dims.size(), 0);
  table.strides[axis] = 1;
  copy(table, y, threads);
}

}  // namespace stow::cpu::kernels
