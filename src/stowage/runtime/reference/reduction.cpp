#include <algorithm>
#include <cmath>
#include <numeric>

#include "stowage/runtime/reference/element.h"
#include "stowage/runtime/reference/families.h"
#include "stowage/runtime/reference/lanes.h"

namespace stow::ref {
namespace {

// The operand index that lies at `kept` and `reduced`, each in the order of its axes.
Dims merge(const std::vector<bool>& is_reduced, const Dims& kept, const Dims& reduced) {
  Dims index;
  size_t next_kept = 0, next_reduced = 0;
  for (bool r : is_reduced) index.push_back(r ? reduced[next_reduced++] : kept[next_kept++]);
  return index;
}

// True if the key at `a` comes before the one at `b`; NaN is the largest.
bool sorts_before(const TensorView& key, const Dims& a, const Dims& b, bool descending,
                  bool signed_zeros) {
  if (is_float(key.dtype)) {
    const double x = load_float(key, a), y = load_float(key, b);
    if (std::isnan(x) || std::isnan(y))
      return std::isnan(x) != std::isnan(y) && std::isnan(x) == descending;
    if (signed_zeros && x == 0 && y == 0)
      return std::signbit(x) != std::signbit(y) && std::signbit(x) != descending;
    return descending ? y < x : x < y;
  }
  const int64_t x = load_int(key, a), y = load_int(key, b);
  const IntType type = int_type(key.dtype);
  return descending ? int_less(y, x, type) : int_less(x, y, type);
}

}  // namespace

void reduce(const AxesParams& params, Views in, Views out, Float2 on_float, double float_identity,
            Int2 on_int, int64_t (*int_identity)(IntType)) {
  const TensorView &x = in[0], &y = out[0];
  std::vector<bool> is_reduced(x.dims.size(), false);
  Dims reduced_dims;
  for (int64_t axis : params.axes) is_reduced[static_cast<size_t>(axis)] = true;
  for (size_t k = 0; k < x.dims.size(); ++k)
    if (is_reduced[k]) reduced_dims.push_back(x.dims[k]);
  const IntType type = int_type(x.dtype);
  for_each_index(y.dims, [&](const Dims& kept) {
    double float_sum = float_identity;
    int64_t int_sum = is_float(x.dtype) ? 0 : int_identity(type);
    for_each_index(reduced_dims, [&](const Dims& reduced) {
      const Dims i = merge(is_reduced, kept, reduced);
      if (is_float(x.dtype))
        float_sum = on_float(float_sum, load_float(x, i));
      else
        int_sum = on_int(int_sum, load_int(x, i), type);
    });
    if (is_float(x.dtype))
      store_float(y, kept, float_sum);
    else
      store_int(y, kept, int_sum);
  });
}

void arg_reduce(const ArgReduceParams& params, bool max, Views in, Views out) {
  const TensorView &x = in[0], &y = out[0];
  const auto axis = static_cast<size_t>(params.axis);
  for_each_index(y.dims, [&](const Dims& kept) {
    Dims best(kept);
    best.insert(best.begin() + params.axis, 0);
    Dims i(best);
    for (i[axis] = 1; i[axis] < x.dims[axis]; ++i[axis]) {
      bool better;
      if (is_float(x.dtype)) {
        const double value = load_float(x, i), extreme = load_float(x, best);
        better = !std::isnan(extreme) &&
                 (std::isnan(value) || (max ? value > extreme : value < extreme));
      } else {
        const int64_t value = load_int(x, i), extreme = load_int(x, best);
        const IntType type = int_type(x.dtype);
        better = max ? int_less(extreme, value, type) : int_less(value, extreme, type);
      }
      if (better) best = i;
    }
    store_int(y, kept, best[axis]);
  });
}

namespace {

// The places along one lane in sorted order.
std::vector<int64_t> sorted_places(const TensorView& key, const Dims& lane, int64_t axis,
                                   bool descending, bool signed_zeros) {
  std::vector<int64_t> order(static_cast<size_t>(key.dims[static_cast<size_t>(axis)]));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return sorts_before(key, with(lane, axis, a), with(lane, axis, b), descending, signed_zeros);
  });
  return order;
}

}  // namespace

void sort(const AxisParams& params, Views in, Views out) {
  for_each_lane(in[0].dims, params.axis, [&](const Dims& lane) {
    const std::vector<int64_t> order = sorted_places(in[0], lane, params.axis, params.flag, false);
    for (size_t k = 0; k < in.size(); ++k)
      for (size_t i = 0; i < order.size(); ++i)
        copy_element(in[k], with(lane, params.axis, order[i]), out[k],
                     with(lane, params.axis, static_cast<int64_t>(i)));
  });
}

void top_k(const TopKParams& params, Views in, Views out) {
  for_each_lane(in[0].dims, params.axis, [&](const Dims& lane) {
    const std::vector<int64_t> order = sorted_places(in[0], lane, params.axis, true, true);
    for (int64_t i = 0; i < params.k; ++i) {
      const int64_t from = order[static_cast<size_t>(i)];
      const Dims to = with(lane, params.axis, i);
      copy_element(in[0], with(lane, params.axis, from), out[0], to);
      store_int(out[1], to, from);
    }
  });
}

}  // namespace stow::ref
