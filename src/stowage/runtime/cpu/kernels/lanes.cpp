// arg-reductions: along one axis in order, all other axes free.
#include "stowage/runtime/cpu/kernels/lane_groups.h"
#include "stowage/runtime/cpu/kernels/op_families.h"
#include "stowage/runtime/cpu/kernels/op_types.h"

namespace stow::cpu::kernels {
namespace {

void store_index(const TensorView& y, int64_t offset, int64_t value) {
  with_dtype(y.dtype, [&](auto t) {
    using T = decltype(t);
    if constexpr (std::is_integral_v<T>)
      reinterpret_cast<T*>(y.data)[offset] = static_cast<T>(value);
    else
      STOW_CHECK(false, "{} is no index type", dtype_name(y.dtype));
  });
}

}  // namespace

void arg_reduce(const ArgReduceParams& params, bool max, Views in, Views out, int threads) {
  const TensorView &x = in[0], &y = out[0];
  const auto axis = static_cast<size_t>(params.axis);
  Nest<2> lanes;
  for (size_t a = 0; a < x.dims.size(); ++a)
    if (a != axis) add_axis(lanes, x.dims[a], {y.strides[a < axis ? a : a - 1], x.strides[a]});
  const int64_t n = x.dims[axis], step = x.strides[axis];
  with_dtype(x.dtype, [&](auto t) {
    using T = decltype(t);
    using A = Acc<T>;
    const T* data = reinterpret_cast<const T*>(x.data);
    const auto run = [&](auto better) {
      for_each_lane_group(
          lanes, step, n * int64_t{sizeof(T)}, threads,
          [&](std::array<int64_t, 2> at, int64_t width, std::array<int64_t, 2> stride) {
            A best[kLanes];
            int64_t index[kLanes];
            for (int64_t l = 0; l < width; ++l) {
              best[l] = load(data[at[1] + l * stride[1]]);
              index[l] = 0;
            }
            for (int64_t i = 1; i < n; ++i)
              for (int64_t l = 0; l < width; ++l) {
                const A value = load(data[at[1] + i * step + l * stride[1]]);
                if (better(value, best[l])) {
                  best[l] = value;
                  index[l] = i;
                }
              }
            for (int64_t l = 0; l < width; ++l) store_index(y, at[0] + l * stride[0], index[l]);
          });
    };
    // The first NaN is the extreme: it beats what is not NaN, and nothing beats it.
    if (max)
      run([](A v, A best) { return v > best || (v != v && best == best); });
    else
      run([](A v, A best) { return v < best || (v != v && best == best); });
  });
}

}  // namespace stow::cpu::kernels
