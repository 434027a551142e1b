// Windowed reductions: results along the widest axis that no window spans are computed together.
#include <limits>

#include "stowage/base/bytes.h"
#include "stowage/runtime/cpu/kernels/op_families.h"
#include "stowage/runtime/cpu/kernels/op_types.h"
#include "stowage/runtime/cpu/kernels/parallel_for.h"

namespace stow::cpu::kernels {
namespace {

constexpr int64_t kLanes = 64;  // results computed together
constexpr int64_t kNowhere = -1;

// Scratch: for each axis a table [result, place in the window] of the operand's index, kNowhere in
// holes and outside.
struct Tables {
  std::vector<int64_t*> of_axis;

  Tables(const WindowParams& p, const TensorView& x, const TensorView& y, void* scratch) {
    auto* at = static_cast<std::byte*>(scratch);
    for (size_t a = 0; a < x.dims.size(); ++a) {
      auto* table = reinterpret_cast<int64_t*>(at);
      for (int64_t o = 0; o < y.dims[a]; ++o)
        for (int64_t w = 0; w < p.sizes[a]; ++w) {
          const int64_t place = o * p.strides[a] + w * p.window_dilation[a] - p.low[a];
          const int64_t i = place / p.base_dilation[a];
          const bool falls = place >= 0 && place % p.base_dilation[a] == 0 && i < x.dims[a];
          table[o * p.sizes[a] + w] = falls ? i : kNowhere;
        }
      of_axis.push_back(table);
      at += align_up(y.dims[a] * p.sizes[a] * int64_t{sizeof(int64_t)}, 64);
    }
  }
};

// The axis along which results are computed together: its windows are single elements one after the
// other. -1 if there is none.
int64_t lane_axis(const WindowParams& p, const TensorView& y) {
  int64_t best = -1;
  for (size_t a = 0; a < y.dims.size(); ++a) {
    const bool plain = p.sizes[a] == 1 && p.strides[a] == 1 && p.low[a] == 0 && p.high[a] == 0 &&
                       p.base_dilation[a] == 1;
    if (plain && (best < 0 || y.dims[a] > y.dims[static_cast<size_t>(best)]))
      best = static_cast<int64_t>(a);
  }
  return best;
}

// For each group of up to kLanes results: start(width), then visit(offset of the first element in
// x, its place in a row-major x, width) for every element of the window in order, then
// finish(offset of the first result in y, width).
template <typename Group>
void for_each_window(const WindowParams& p, const TensorView& x, const TensorView& y,
                     const Tables& tables, int threads, const Group& make_group) {
  const int64_t lanes = lane_axis(p, y);
  const size_t rank = y.dims.size();
  const Dims places = contiguous_strides(Shape(x.dims));
  Dims units = y.dims;  // groups along the lane axis, results along the others
  int64_t n_units = 1, window = 1;
  if (lanes >= 0) {
    int64_t& n = units[static_cast<size_t>(lanes)];
    n = (n + kLanes - 1) / kLanes;
  }
  for (size_t a = 0; a < rank; ++a) {
    n_units *= units[a];
    window *= p.sizes[a];
  }
  const int64_t width_of_all = lanes >= 0 ? kLanes : 1;
  const int64_t unit_bytes = window * width_of_all * dtype_bytes(x.dtype);
  parallel_for(threads, n_units, kBytesPerThread / std::max<int64_t>(unit_bytes, 1),
               [&](int64_t begin, int64_t end, int) {
                 auto group = make_group();
                 Dims o(rank), w(rank);
                 for (int64_t unit = begin; unit < end; ++unit) {
                   int64_t rest = unit, to = 0, width = 1;
                   for (size_t a = rank; a-- > 0;) {
                     o[a] = rest % units[a];
                     rest /= units[a];
                     if (static_cast<int64_t>(a) == lanes) {
                       o[a] *= kLanes;
                       width = std::min(kLanes, y.dims[a] - o[a]);
                     }
                     to += o[a] * y.strides[a];
                   }
                   group.start(width);
                   // The elements of the window; an index that falls nowhere skips all below it.
                   std::fill(w.begin(), w.end(), 0);
                   while (true) {
                     int64_t from = 0, place = 0;
                     size_t missing = rank;
                     for (size_t a = 0; a < rank && missing == rank; ++a) {
                       const int64_t i = tables.of_axis[a][o[a] * p.sizes[a] + w[a]];
                       if (i == kNowhere) missing = a;
                       from += i * x.strides[a];
                       place += i * places[a];
                     }
                     if (missing == rank) group.visit(from, place, width);
                     size_t a = missing == rank ? rank : missing + 1;
                     for (size_t below = a; below < rank; ++below) w[below] = 0;
                     while (a > 0 && ++w[a - 1] == p.sizes[a - 1]) w[--a] = 0;
                     if (a == 0) break;
                   }
                   group.finish(to, width);
                 }
               });
}

int64_t stride_of(const Dims& strides, int64_t axis) {
  return axis < 0 ? 0 : strides[static_cast<size_t>(axis)];
}

template <typename T, typename Step>
struct Fold {
  const T* from;
  T* to;
  int64_t from_stride, to_stride;
  Acc<T> identity;
  Step step;
  Acc<T> state[kLanes];

  void start(int64_t width) { std::fill_n(state, width, identity); }
  void visit(int64_t offset, int64_t, int64_t width) {
    const T* f = from + offset;
    for (int64_t l = 0; l < width; ++l) state[l] = step(state[l], load(f[l * from_stride]));
  }
  void finish(int64_t offset, int64_t width) {
    for (int64_t l = 0; l < width; ++l) store<T>(state[l], to[offset + l * to_stride]);
  }
};

template <typename T, typename I, typename Better>
struct Find {
  const T* from;
  I* to;
  int64_t from_stride, to_stride, place_stride;
  Better better;
  Acc<T> best[kLanes];
  int64_t at[kLanes];

  void start(int64_t width) { std::fill_n(at, width, kNowhere); }
  void visit(int64_t offset, int64_t place, int64_t width) {
    for (int64_t l = 0; l < width; ++l) {
      const Acc<T> value = load(from[offset + l * from_stride]);
      if (at[l] != kNowhere && !better(value, best[l])) continue;
      best[l] = value;
      at[l] = place + l * place_stride;
    }
  }
  void finish(int64_t offset, int64_t width) {
    for (int64_t l = 0; l < width; ++l) to[offset + l * to_stride] = static_cast<I>(at[l]);
  }
};

template <typename A>
A lowest() {
  if constexpr (std::is_same_v<A, bool>)
    return false;
  else if constexpr (std::is_floating_point_v<A>)
    return -std::numeric_limits<A>::infinity();
  else
    return std::numeric_limits<A>::min();
}
template <typename A>
A highest() {
  if constexpr (std::is_same_v<A, bool>)
    return true;
  else if constexpr (std::is_floating_point_v<A>)
    return std::numeric_limits<A>::infinity();
  else
    return std::numeric_limits<A>::max();
}

}  // namespace

int64_t window_scratch_bytes(const WindowParams& params, Views out) {
  int64_t bytes = 0;
  for (size_t a = 0; a < params.sizes.size(); ++a)
    bytes += align_up(out[0].dims[a] * params.sizes[a] * int64_t{sizeof(int64_t)}, 64);
  return bytes;
}

void reduce_window(OpKind op, const WindowParams& params, Views in, Views out, void* scratch,
                   int threads) {
  const TensorView &x = in[0], &y = out[0];
  if (y.elems() == 0) return;
  const Tables tables(params, x, y, scratch);
  const int64_t lanes = lane_axis(params, y);
  with_dtype(x.dtype, [&](auto t) {
    using T = decltype(t);
    using A = Acc<T>;
    const auto fold = [&](A identity, auto step) {
      for_each_window(params, x, y, tables, threads, [&] {
        return Fold<T, decltype(step)>{reinterpret_cast<const T*>(x.data),
                                       reinterpret_cast<T*>(y.data),
                                       stride_of(x.strides, lanes),
                                       stride_of(y.strides, lanes),
                                       identity,
                                       step,
                                       {}};
      });
    };
    if (op == OpKind::kWindowSum)
      fold(A{0}, [](A a, A b) { return add(a, b); });
    else if (op == OpKind::kWindowMax)
      fold(lowest<A>(), [](A a, A b) { return maximum(a, b); });
    else
      fold(highest<A>(), [](A a, A b) { return minimum(a, b); });
  });
}

void window_arg(OpKind op, const WindowParams& params, Views in, Views out, void* scratch,
                int threads) {
  const TensorView &x = in[0], &y = out[0];
  if (y.elems() == 0) return;
  const Tables tables(params, x, y, scratch);
  const int64_t lanes = lane_axis(params, y);
  const int64_t place_stride = stride_of(contiguous_strides(Shape(x.dims)), lanes);
  with_dtype(x.dtype, [&](auto t) {
    using T = decltype(t);
    using A = Acc<T>;
    const auto find = [&](auto index, auto better) {
      using I = decltype(index);
      for_each_window(params, x, y, tables, threads, [&] {
        return Find<T, I, decltype(better)>{reinterpret_cast<const T*>(x.data),
                                            reinterpret_cast<I*>(y.data),
                                            stride_of(x.strides, lanes),
                                            stride_of(y.strides, lanes),
                                            place_stride,
                                            better,
                                            {},
                                            {}};
      });
    };
    const auto of_index = [&](auto better) {
      if (y.dtype == DType::kI32)
        find(int32_t{}, better);
      else
        find(int64_t{}, better);
    };
    // The first NaN is the extreme: it beats what is not NaN, and nothing beats it.
    if (op == OpKind::kWindowArgMax)
      of_index([](A v, A best) { return v > best || (v != v && best == best); });
    else
      of_index([](A v, A best) { return v < best || (v != v && best == best); });
  });
}

}  // namespace stow::cpu::kernels
