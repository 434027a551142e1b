#include "stowage/runtime/reference/families.h"
#include "stowage/runtime/reference/lanes.h"

namespace stow::ref {
namespace {

// Calls f(index, is the first) along each lane, from the end where `params` says so.
template <typename F>
void along_lanes(const AxisParams& params, const Dims& dims, F f) {
  const int64_t n = dims[static_cast<size_t>(params.axis)];
  for_each_lane(dims, params.axis, [&](const Dims& lane) {
    for (int64_t k = 0; k < n; ++k) f(with(lane, params.axis, params.flag ? n - 1 - k : k), k == 0);
  });
}

}  // namespace

void cumulative(const AxisParams& params, Views in, Views out, Float2 on_float, Int2 on_int) {
  const TensorView &x = in[0], &y = out[0];
  double float_sum = 0;
  int64_t int_sum = 0;
  along_lanes(params, x.dims, [&](const Dims& i, bool first) {
    if (is_float(x.dtype)) {
      const double value = load_float(x, i);
      float_sum = first ? value : on_float(float_sum, value);
      store_float(y, i, float_sum);
    } else {
      const int64_t value = load_int(x, i);
      int_sum = first ? value : on_int(int_sum, value, int_type(x.dtype));
      store_int(y, i, int_sum);
    }
  });
}

void linear_scan(const AxisParams& params, Views in, Views out) {
  const TensorView &a = in[0], &b = in[1], &y = out[0];
  double float_sum = 0;
  int64_t int_sum = 0;
  along_lanes(params, a.dims, [&](const Dims& i, bool first) {
    if (is_float(a.dtype)) {
      const double value = load_float(b, i);
      float_sum = first ? value : load_float(a, i) * float_sum + value;
      store_float(y, i, float_sum);
    } else {
      const IntType type = int_type(a.dtype);
      const int64_t value = load_int(b, i);
      int_sum = first ? value : int_add(int_mul(load_int(a, i), int_sum, type), value, type);
      store_int(y, i, int_sum);
    }
  });
}

}  // namespace stow::ref
