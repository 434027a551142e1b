// Cumulative ops and linear recurrences: along one axis in order, all other axes free.
#include <cmath>

#include "stowage/runtime/cpu/kernels/lane_groups.h"
#include "stowage/runtime/cpu/kernels/op_families.h"
#include "stowage/runtime/cpu/kernels/op_types.h"

namespace stow::cpu::kernels {
namespace {

double log_add_exp(double a, double b) {
  if (a != a || b != b) return a + b;
  if (a == b) return a + std::log(2.0);  // infinities too
  const double most = std::max(a, b);
  return std::isinf(most) ? most : most + std::log1p(std::exp(std::min(a, b) - most));
}

// State A starts at the first element, and step(state, element) follows for each other.
template <typename T, typename A, typename Step>
void run(const AxisParams& params, const TensorView& x, const TensorView& y, int threads,
         const Step& step) {
  const auto axis = static_cast<size_t>(params.axis);
  Nest<2> lanes;
  for (size_t a = 0; a < x.dims.size(); ++a)
    if (a != axis) add_axis(lanes, x.dims[a], {y.strides[a], x.strides[a]});
  const int64_t n = x.dims[axis];
  const int64_t begin = params.flag ? n - 1 : 0, sign = params.flag ? -1 : 1;
  const T* from = reinterpret_cast<const T*>(x.data);
  T* to = reinterpret_cast<T*>(y.data);
  const auto group = [&](std::array<int64_t, 2> at, auto width, std::array<int64_t, 2> stride) {
    A state[kLanes] = {};
    for (int64_t i = 0; i < n; ++i) {
      const int64_t k = begin + sign * i;
      const T* f = from + at[1] + k * x.strides[axis];
      T* d = to + at[0] + k * y.strides[axis];
      for (int64_t l = 0; l < width; ++l) {
        const A value = static_cast<A>(load(f[l * stride[1]]));
        state[l] = i == 0 ? value : step(state[l], value);
        store<T>(static_cast<Acc<T>>(state[l]), d[l * stride[0]]);
      }
    }
  };
  for_each_lane_group(lanes, x.strides[axis], n * int64_t{sizeof(T)}, threads,
                      [&](std::array<int64_t, 2> at, int64_t width, std::array<int64_t, 2> stride) {
                        // Widths known to the compiler: the states stay in registers.
                        if (width == kFew)
                          group(at, std::integral_constant<int64_t, kFew>{}, stride);
                        else if (width == 1)
                          group(at, std::integral_constant<int64_t, 1>{}, stride);
                        else
                          group(at, width, stride);
                      });
}

}  // namespace

void cumulative(OpKind op, const AxisParams& params, Views in, Views out, int threads) {
  with_dtype(in[0].dtype, [&](auto t) {
    using T = decltype(t);
    using A = Acc<T>;
    const auto with = [&](auto state, const auto& step) {
      run<T, decltype(state)>(params, in[0], out[0], threads, step);
    };
    if (op == OpKind::kCumSum) return with(A{}, [](A a, A b) { return add(a, b); });
    if (op == OpKind::kCumProd) return with(A{}, [](A a, A b) { return mul(a, b); });
    if (op == OpKind::kCumMax) return with(A{}, [](A a, A b) { return maximum(a, b); });
    if (op == OpKind::kCumMin) return with(A{}, [](A a, A b) { return minimum(a, b); });
    if constexpr (kIsFloat<T>)
      if (op == OpKind::kCumLogSumExp) return with(double{}, log_add_exp);
    STOW_CHECK(false, "{} of {}", op_name(op), dtype_name(in[0].dtype));
  });
}

void linear_scan(const AxisParams& params, Views in, Views out, int threads) {
  const TensorView &a = in[0], &b = in[1], &y = out[0];
  const auto axis = static_cast<size_t>(params.axis);
  Nest<3> lanes;
  for (size_t i = 0; i < y.dims.size(); ++i)
    if (i != axis) add_axis(lanes, y.dims[i], {y.strides[i], a.strides[i], b.strides[i]});
  const int64_t n = y.dims[axis];
  const int64_t begin = params.flag ? n - 1 : 0, sign = params.flag ? -1 : 1;
  using Offsets = std::array<int64_t, 3>;
  with_dtype(y.dtype, [&](auto t) {
    using T = decltype(t);
    using A = Acc<T>;
    const T* factors = reinterpret_cast<const T*>(a.data);
    const T* terms = reinterpret_cast<const T*>(b.data);
    T* to = reinterpret_cast<T*>(y.data);
    for_each_lane_group(
        lanes, a.strides[axis], 2 * n * int64_t{sizeof(T)}, threads,
        [&](Offsets at, int64_t width, Offsets stride) {
          A state[kLanes] = {};
          for (int64_t i = 0; i < n; ++i) {
            const int64_t k = begin + sign * i;
            for (int64_t l = 0; l < width; ++l) {
              const A term = load(terms[at[2] + k * b.strides[axis] + l * stride[2]]);
              const A factor = load(factors[at[1] + k * a.strides[axis] + l * stride[1]]);
              state[l] = i == 0 ? term : add(mul(factor, state[l]), term);
              store<T>(state[l], to[at[0] + k * y.strides[axis] + l * stride[0]]);
            }
          }
        });
  });
}

}  // namespace stow::cpu::kernels
