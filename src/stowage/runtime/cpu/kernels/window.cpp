// Windowed reductions: which results are computed together, and which elements they read.
#include <algorithm>
#include <numeric>

#include "stowage/base/bytes.h"
#include "stowage/runtime/cpu/kernels/op_families.h"
#include "stowage/runtime/cpu/kernels/parallel_for.h"
#include "stowage/runtime/cpu/kernels/window_rows.h"

namespace stow::cpu::kernels {
namespace {

constexpr int64_t kLeastLanes = 8;  // that are computed together well

int64_t divide_up(int64_t a, int64_t b) { return a <= 0 ? 0 : (a + b - 1) / b; }

struct Axis {
  int64_t in, out, size, stride, low, base_dilation, window_dilation;
  int64_t x_stride, y_stride, place;
  bool plain;  // its windows are single elements, one after the other

  int64_t place_of(int64_t o, int64_t w) const { return o * stride + w * window_dilation - low; }
  // Between elements that a result reads, in places of the window and in elements.
  int64_t tap_step() const { return base_dilation / std::gcd(base_dilation, window_dilation); }
  int64_t index_step() const { return tap_step() * window_dilation / base_dilation; }
  // Between results that read elements at one place of the window.
  int64_t out_step() const { return base_dilation / std::gcd(base_dilation, stride); }
  int64_t out_index_step() const { return out_step() * stride / base_dilation; }

  WindowTaps taps(int64_t o) const {
    const int64_t step = tap_step();
    int64_t w = 0;
    while (w < step && place_of(o, w) % base_dilation != 0) ++w;
    if (w == step) return {0, 0};
    w += divide_up(-place_of(o, w), step * window_dilation) * step;
    const int64_t index = place_of(o, w) / base_dilation;
    return {index, std::min(divide_up(size - w, step), divide_up(in - index, index_step()))};
  }
  WindowLineTap line_tap(int64_t w) const {
    const int64_t step = out_step();
    int64_t o = 0;
    while (o < step && place_of(o, w) % base_dilation != 0) ++o;
    if (o == step) return {0, 0, 0};
    o += divide_up(-place_of(o, w), step * stride) * step;
    const int64_t index = place_of(o, w) / base_dilation;
    return {o, std::min(divide_up(out - o, step), divide_up(in - index, out_index_step())), index};
  }
};

// The loops over the results of one op, and where their tables lie in scratch.
struct WindowNest {
  std::vector<Axis> axes;
  int lanes = -1, inner = -1, line = -1;  // numbers of axes
  std::vector<size_t> outer;              // the others
  std::vector<int64_t> table_at;          // of each axis, in bytes; -1 where there is none
  int64_t bases_at = 0, most_bases = 1, bytes = 0;
  int64_t rows = 1;

  WindowNest(const WindowParams& p, const TensorView& x, const TensorView& y, int threads) {
    const Dims places = contiguous_strides(Shape(x.dims));
    for (size_t a = 0; a < x.dims.size(); ++a) {
      const Axis axis{x.dims[a],          y.dims[a],            p.sizes[a],   p.strides[a],
                      p.low[a],           p.base_dilation[a],   p.window_dilation[a],
                      x.strides[a],       y.strides[a],         places[a],
                      p.sizes[a] == 1 && p.strides[a] == 1 && p.low[a] == 0 && p.high[a] == 0 &&
                          p.base_dilation[a] == 1};
      if (axis.plain && axis.out == 1) continue;
      if (!axes.empty() && axis.plain && axes.back().plain &&
          axes.back().x_stride == axis.x_stride * axis.in &&
          axes.back().y_stride == axis.y_stride * axis.out) {
        Axis& joined = axes.back();
        joined.in *= axis.in, joined.out *= axis.out;
        joined.x_stride = axis.x_stride, joined.y_stride = axis.y_stride, joined.place = axis.place;
        continue;
      }
      axes.push_back(axis);
    }
    choose();
    lay_out(threads);
  }

 private:
  // Lanes whose elements are adjacent, or else results of the last windowed axis, or any lanes.
  void choose() {
    int last_windowed = -1, last_plain = -1, most = -1;
    for (size_t a = 0; a < axes.size(); ++a) {
      const auto i = static_cast<int>(a);
      if (!axes[a].plain) last_windowed = i;
      if (!axes[a].plain) continue;
      if (most < 0 || axes[a].out > axes[static_cast<size_t>(most)].out) most = i;
      if (axes[a].x_stride == 1 && axes[a].out >= kLeastLanes) lanes = i;
    }
    if (lanes < 0 && last_windowed >= 0 &&
        axes[static_cast<size_t>(last_windowed)].out >= kLeastLanes)
      line = last_windowed;
    else if (lanes < 0)
      lanes = most;
    for (size_t a = 0; a < axes.size(); ++a)
      if (axes[a].plain && static_cast<int>(a) != lanes) last_plain = static_cast<int>(a);
    if (line < 0) inner = last_windowed >= 0 ? last_windowed : last_plain;
    for (size_t a = 0; a < axes.size(); ++a) {
      const auto i = static_cast<int>(a);
      if (i != lanes && i != inner && i != line) outer.push_back(a);
    }
  }

  void lay_out(int threads) {
    table_at.assign(axes.size(), -1);
    const auto take = [&](int64_t n) {
      const int64_t at = bytes;
      bytes += align_up(n, 64);
      return at;
    };
    for (size_t a = 0; a < axes.size(); ++a) {
      const auto i = static_cast<int>(a);
      if (i == line)
        table_at[a] = take(axes[a].size * int64_t{sizeof(WindowLineTap)});
      else if (i == inner || (!axes[a].plain && i != lanes))
        table_at[a] = take(axes[a].out * int64_t{sizeof(WindowTaps)});
    }
    for (size_t a : outer) {
      rows *= axes[a].out;
      most_bases *= axes[a].size;
    }
    bases_at = take(most_bases * 2 * int64_t{sizeof(int64_t)});
    bytes += (std::max(threads, 1) - 1) * (bytes - bases_at);
  }
};

// One thread's rows.
class Rows {
 public:
  Rows(const WindowNest& nest, std::byte* scratch, int thread) : nest_(nest), scratch_(scratch) {
    const int64_t own = align_up(nest.most_bases * 2 * int64_t{sizeof(int64_t)}, 64);
    bases_ = reinterpret_cast<int64_t*>(scratch + nest.bases_at + thread * own);
    row_.x_bases = bases_;
    row_.flat_bases = bases_ + nest.most_bases;
    row_.inner = &kOne;
    if (nest.lanes >= 0) {
      const Axis& a = axis(nest.lanes);
      row_.lanes = a.out, row_.x_lane = a.x_stride, row_.y_lane = a.y_stride;
      row_.flat_lane = a.place;
    }
    if (nest.inner >= 0) {
      const Axis& a = axis(nest.inner);
      row_.inner = table<WindowTaps>(nest.inner);
      row_.n_inner = a.out, row_.inner_step = a.index_step();
      row_.x_inner = a.x_stride, row_.y_inner = a.y_stride, row_.flat_inner = a.place;
    }
    if (nest.line >= 0) {
      const Axis& a = axis(nest.line);
      row_.line = table<WindowLineTap>(nest.line);
      row_.n_line = a.size, row_.line_outs = a.out;
      row_.line_step = a.out_step(), row_.line_index_step = a.out_index_step();
      row_.x_line = a.x_stride, row_.y_line = a.y_stride, row_.flat_line = a.place;
    }
  }

  // Prepares row `number`; returns where it begins in the result.
  int64_t go_to(int64_t number) {
    int64_t to = 0;
    bases_[0] = row_places()[0] = 0;
    row_.n_bases = 1;
    int64_t n = nest_.rows;
    for (size_t a : nest_.outer) {
      const Axis& axis = nest_.axes[a];
      n /= axis.out;
      const int64_t o = number / n;
      number %= n;
      to += o * axis.y_stride;
      if (axis.plain) {
        for (int64_t b = 0; b < row_.n_bases; ++b) {
          bases_[b] += o * axis.x_stride;
          row_places()[b] += o * axis.place;
        }
      } else {
        append(axis, table<WindowTaps>(static_cast<int>(a))[o]);
      }
    }
    return to;
  }
  const WindowRow& row() const { return row_; }

 private:
  static constexpr WindowTaps kOne = {0, 1};

  const Axis& axis(int a) const { return nest_.axes[static_cast<size_t>(a)]; }
  template <typename T>
  const T* table(int a) const {
    return reinterpret_cast<const T*>(scratch_ + nest_.table_at[static_cast<size_t>(a)]);
  }
  int64_t* row_places() { return bases_ + nest_.most_bases; }

  // Every base becomes one for each tap, in order: from the last, as there is room behind.
  void append(const Axis& axis, const WindowTaps& taps) {
    for (int64_t b = row_.n_bases; b-- > 0;) {
      const int64_t base = bases_[b], place = row_places()[b];
      for (int64_t t = taps.count; t-- > 0;) {
        const int64_t index = taps.index + t * axis.index_step();
        bases_[b * taps.count + t] = base + index * axis.x_stride;
        row_places()[b * taps.count + t] = place + index * axis.place;
      }
    }
    row_.n_bases *= taps.count;
  }

  const WindowNest& nest_;
  const std::byte* scratch_;
  int64_t* bases_;
  WindowRow row_;
};

void run(OpKind op, const WindowParams& params, const TensorView& x, const TensorView& y,
         void* scratch, int threads) {
  if (y.elems() == 0) return;
  const WindowNest nest(params, x, y, threads);
  auto* const at = static_cast<std::byte*>(scratch);
  int64_t reads = dtype_bytes(x.dtype);  // of one row
  for (size_t a = 0; a < nest.axes.size(); ++a) {
    const Axis& axis = nest.axes[a];
    const bool in_row = std::find(nest.outer.begin(), nest.outer.end(), a) == nest.outer.end();
    reads *= axis.size * (in_row ? axis.out : 1);
    if (nest.table_at[a] < 0) continue;
    if (static_cast<int>(a) == nest.line) {
      auto* const table = reinterpret_cast<WindowLineTap*>(at + nest.table_at[a]);
      for (int64_t w = 0; w < axis.size; ++w) table[w] = axis.line_tap(w);
    } else {
      auto* const table = reinterpret_cast<WindowTaps*>(at + nest.table_at[a]);
      for (int64_t o = 0; o < axis.out; ++o) table[o] = axis.taps(o);
    }
  }
  parallel_for(threads, nest.rows, kBytesPerThread / std::max<int64_t>(reads, 1),
               [&](int64_t begin, int64_t end, int thread) {
                 Rows rows(nest, at, thread);
                 for (int64_t i = begin; i < end; ++i) {
                   std::byte* const to = y.data + rows.go_to(i) * dtype_bytes(y.dtype);
                   window_row(op, x.dtype, rows.row(), x.data, to, y.dtype == DType::kI64);
                 }
               });
}

}  // namespace

int64_t window_scratch_bytes(const WindowParams& params, Views in, Views out, int threads) {
  return out[0].elems() == 0 ? 0 : WindowNest(params, in[0], out[0], threads).bytes;
}

void reduce_window(OpKind op, const WindowParams& params, Views in, Views out, void* scratch,
                   int threads) {
  run(op, params, in[0], out[0], scratch, threads);
}

void window_arg(OpKind op, const WindowParams& params, Views in, Views out, void* scratch,
                int threads) {
  run(op, params, in[0], out[0], scratch, threads);
}

}  // namespace stow::cpu::kernels
