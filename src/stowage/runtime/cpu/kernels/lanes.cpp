// arg-reductions and cumulative sums: along one axis in order, all other axes free.
#include "stowage/runtime/cpu/kernels/op_families.h"
#include "stowage/runtime/cpu/kernels/op_types.h"
#include "stowage/runtime/cpu/kernels/parallel_for.h"

namespace stow::cpu::kernels {
namespace {

constexpr int64_t kLanes = 64;  // lanes walked together where they are the denser way
constexpr int64_t kFew = 4;     // else: so that several chains of additions are under way

// Calls f(offsets, n, lane_strides) for groups of n <= kLanes lanes that lie along one axis of the
// nest. Operand 1 decides the order of the axes.
template <typename F>
void for_each_lane_group(Nest<2> lanes, int64_t axis_stride, int64_t axis_bytes, int threads,
                         const F& f) {
  if (count(lanes) == 0) return;
  sort_by_stride(lanes, 1);
  merge(lanes);
  LoopAxis<2> inner{1, {0, 0}};
  if (!lanes.empty()) {
    inner = lanes.back();
    lanes.pop_back();
  }
  const int64_t size = std::abs(inner.stride[1]) < std::abs(axis_stride) ? kLanes : kFew;
  const int64_t groups = (inner.extent + size - 1) / size;
  const int64_t grain = kBytesPerThread / (std::min(inner.extent, size) * axis_bytes + 1);
  parallel_for(threads, count(lanes) * groups, grain, [&](int64_t begin, int64_t end, int) {
    Walk<2> walk(lanes, begin / groups);
    int64_t group = begin % groups;
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t first = group * size;
      f(std::array<int64_t, 2>{walk.offset[0] + first * inner.stride[0],
                               walk.offset[1] + first * inner.stride[1]},
        std::min(size, inner.extent - first), inner.stride);
      if (++group == groups) {
        group = 0;
        walk.next();
      }
    }
  });
}

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

void cumsum(const AxisParams& params, Views in, Views out, int threads) {
  const TensorView &x = in[0], &y = out[0];
  const auto axis = static_cast<size_t>(params.axis);
  Nest<2> lanes;
  for (size_t a = 0; a < x.dims.size(); ++a)
    if (a != axis) add_axis(lanes, x.dims[a], {y.strides[a], x.strides[a]});
  const int64_t n = x.dims[axis];
  const int64_t first = params.flag ? n - 1 : 0, sign = params.flag ? -1 : 1;
  with_dtype(x.dtype, [&](auto t) {
    using T = decltype(t);
    using A = Acc<T>;
    const T* from = reinterpret_cast<const T*>(x.data);
    T* to = reinterpret_cast<T*>(y.data);
    const auto group = [&](std::array<int64_t, 2> at, auto width, std::array<int64_t, 2> stride) {
      A sum[kLanes] = {};
      for (int64_t i = 0; i < n; ++i) {
        const int64_t k = first + sign * i;
        const T* f = from + at[1] + k * x.strides[axis];
        T* d = to + at[0] + k * y.strides[axis];
        for (int64_t l = 0; l < width; ++l) {
          sum[l] = add(sum[l], load(f[l * stride[1]]));
          store<T>(sum[l], d[l * stride[0]]);
        }
      }
    };
    for_each_lane_group(
        lanes, x.strides[axis], n * int64_t{sizeof(T)}, threads,
        [&](std::array<int64_t, 2> at, int64_t width, std::array<int64_t, 2> stride) {
          if (width == kFew)  // known to the compiler: the sums stay in registers
            group(at, std::integral_constant<int64_t, kFew>{}, stride);
          else
            group(at, width, stride);
        });
  });
}

}  // namespace stow::cpu::kernels
