#include <cmath>
#include <vector>

#include "stowage/runtime/reference/element.h"
#include "stowage/runtime/reference/families.h"

namespace stow::ref {
namespace {

// Computes the place of element `w` of window `o` on an axis of n elements; false in a hole or
// outside.
bool falls_on(int64_t o, int64_t w, int64_t stride, int64_t low, int64_t base_dilation,
              int64_t window_dilation, int64_t n, int64_t& at) {
  const int64_t place = o * stride + w * window_dilation - low;
  at = place / base_dilation;
  return place >= 0 && place % base_dilation == 0 && at < n;
}

// Calls f(index of x) for the elements of window `o`, in row-major order.
template <typename F>
void for_each_in_window(const WindowParams& p, const TensorView& x, const Dims& o, F f) {
  for_each_index(p.sizes, [&](const Dims& w) {
    Dims at(o.size());
    for (size_t a = 0; a < o.size(); ++a)
      if (!falls_on(o[a], w[a], p.strides[a], p.low[a], p.base_dilation[a], p.window_dilation[a],
                    x.dims[a], at[a]))
        return;
    f(static_cast<const Dims&>(at));
  });
}

}  // namespace

void reduce_window(const WindowParams& params, Views in, Views out, Float2 on_float,
                   double float_identity, Int2 on_int, int64_t (*int_identity)(IntType)) {
  const TensorView &x = in[0], &y = out[0];
  const IntType type = int_type(x.dtype);
  for_each_index(y.dims, [&](const Dims& o) {
    double float_sum = float_identity;
    int64_t int_sum = is_float(x.dtype) ? 0 : int_identity(type);
    for_each_in_window(params, x, o, [&](const Dims& i) {
      if (is_float(x.dtype))
        float_sum = on_float(float_sum, load_float(x, i));
      else
        int_sum = on_int(int_sum, load_int(x, i), type);
    });
    if (is_float(x.dtype))
      store_float(y, o, float_sum);
    else
      store_int(y, o, int_sum);
  });
}

void window_arg(const WindowParams& params, bool max, Views in, Views out) {
  const TensorView &x = in[0], &y = out[0];
  const IntType type = int_type(x.dtype);
  for_each_index(y.dims, [&](const Dims& o) {
    int64_t best = -1, int_best = 0;
    double float_best = 0;
    for_each_in_window(params, x, o, [&](const Dims& i) {
      int64_t place = 0;
      for (size_t a = 0; a < i.size(); ++a) place = place * x.dims[a] + i[a];
      bool better = best < 0;
      if (is_float(x.dtype)) {
        const double value = load_float(x, i);
        if (!better && !std::isnan(float_best))
          better = std::isnan(value) || (max ? value > float_best : value < float_best);
        if (better) float_best = value;
      } else {
        const int64_t value = load_int(x, i);
        if (!better)
          better = max ? int_less(int_best, value, type) : int_less(value, int_best, type);
        if (better) int_best = value;
      }
      if (better) best = place;
    });
    store_int(y, o, best);
  });
}

void convolution(const ConvParams& p, Views in, Views out) {
  const TensorView &x = in[0], &k = in[1], &y = out[0];
  const int64_t channels = k.dims[1];
  const int64_t features_a_group = k.dims[0] / (p.feature_groups * p.batch_groups);
  const Dims kernel(k.dims.begin() + 1, k.dims.end());  // channel of the group, place
  for_each_index(y.dims, [&](const Dims& o) {
    const int64_t group = features_a_group == 0 ? 0 : o[1] / features_a_group;
    double float_sum = 0;
    int64_t int_sum = 0;
    for_each_index(kernel, [&](const Dims& w) {
      Dims from(x.dims.size()), weight{o[1]};
      from[0] = p.batch_groups > 1 ? group * y.dims[0] + o[0] : o[0];
      from[1] = p.feature_groups > 1 ? group * channels + w[0] : w[0];
      for (size_t a = 2; a < from.size(); ++a)
        if (!falls_on(o[a], w[a - 1], p.strides[a - 2], p.low[a - 2], p.lhs_dilation[a - 2],
                      p.rhs_dilation[a - 2], x.dims[a], from[a]))
          return;
      weight.insert(weight.end(), w.begin(), w.end());
      if (is_float(x.dtype))
        float_sum += load_float(x, from) * load_float(k, weight);
      else
        int_sum =
            int_add(int_sum, int_mul(load_int(x, from), load_int(k, weight), int_type(x.dtype)),
                    int_type(x.dtype));
    });
    if (is_float(x.dtype))
      store_float(y, o, float_sum);
    else
      store_int(y, o, int_sum);
  });
}

}  // namespace stow::ref
