#include "stowage/runtime/cpu/kernels/conv_direct.h"

#include "stowage/runtime/cpu/kernels/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stowage/runtime/cpu/kernels/conv_direct.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "stowage/runtime/cpu/kernels/conv_direct.h"
#include "stowage/runtime/cpu/kernels/gemm_run-inl.h"
#include "stowage/runtime/cpu/kernels/parallel_for.h"

HWY_BEFORE_NAMESPACE();
namespace stow::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kConvCols = kCols<float>;

// Adjacent k that lie side by side in the strip, all of one K block.
struct Segment {
  int64_t at, length;  // floats from the window's first
  bool ends_block;
};

struct ConvMicroArgs {
  const Segment* segments;
  int64_t n_segments;
  const float* a;    // the first window in the strip
  ptrdiff_t a_step;  // bytes to the next
  const float* b;    // rows of whole vectors of a panel of the kernel
  ptrdiff_t b_stride;
  float* out;        // [R, cols]; holds the sums while K blocks go by
  ptrdiff_t out_stride;
  int64_t cols;      // up to the last vector's
};

/// out[r][j] = sum over k of a[r][k] * b[k][j], in blocks: R windows by V vectors of features.
template <int R, int V>
HWY_NOINLINE void conv_micro(const ConvMicroArgs& args) {
  const hn::ScalableTag<float> d;
  constexpr int kLanes = kLanesOf<float>;
  constexpr int kLast = (V - 1) * kLanes;
  hn::Vec<decltype(d)> acc[R][V];
  HWY_UNROLL(16) for (int r = 0; r < R; ++r) {
    HWY_UNROLL(16) for (int v = 0; v < V; ++v) acc[r][v] = hn::Zero(d);
  }
  const float* HWY_RESTRICT b = args.b;
  const ptrdiff_t b_stride = args.b_stride, step = args.a_step, step3 = 3 * step;
  bool first = true;
  const Segment* const end = args.segments + args.n_segments;
  for (const Segment* s = args.segments; s != end; ++s) {
    const char* rows[3];
    for (int r = 0; r < 3; ++r)
      rows[r] = reinterpret_cast<const char*>(args.a + s->at) + 4 * r * step;
    const auto step_of_k = [&]() HWY_ATTR __attribute__((always_inline)) {
      hn::Vec<decltype(d)> row[V];
      HWY_UNROLL(16) for (int v = 0; v < V; ++v) row[v] = hn::LoadU(d, b + v * kLanes);
      HWY_UNROLL(16) for (int r = 0; r < R; ++r) {
        const auto x = hn::Set(d, element_in_place<float>(rows, r, step, step3));
        HWY_UNROLL(16) for (int v = 0; v < V; ++v) acc[r][v] = hn::MulAdd(x, row[v], acc[r][v]);
      }
      HWY_UNROLL(4) for (int r = 0; r < (R + 3) / 4; ++r) rows[r] += sizeof(float);
      b += b_stride;
    };
    int64_t k = s->length;
    for (; k >= kFetchEvery; k -= kFetchEvery) {
      HWY_UNROLL(kStepsAtOnce) for (int i = 0; i < kFetchEvery; ++i) step_of_k();
    }
    for (; k > 0; --k) step_of_k();
    if (!s->ends_block) continue;
    const auto mask = hn::FirstN(d, static_cast<size_t>(args.cols - kLast));
    const bool whole = args.cols == V * kLanes;
    HWY_UNROLL(16) for (int r = 0; r < R; ++r) {
      float* const out = args.out + r * args.out_stride;
      HWY_UNROLL(16) for (int v = 0; v < V; ++v) {
        float* const to = out + v * kLanes;
        if (whole || v < V - 1) {
          if (!first) acc[r][v] = hn::Add(hn::LoadU(d, to), acc[r][v]);
          hn::StoreU(acc[r][v], d, to);
        } else {
          if (!first) acc[r][v] = hn::Add(hn::MaskedLoad(mask, d, to), acc[r][v]);
          hn::BlendedStore(acc[r][v], mask, d, to);
        }
        acc[r][v] = hn::Zero(d);
      }
    }
    first = false;
  }
}

using ConvMicroFn = void (*)(const ConvMicroArgs&);
template <int V, int... R>
constexpr std::array<ConvMicroFn, sizeof...(R)> conv_micro_table(std::integer_sequence<int, R...>) {
  return {&conv_micro<R + 1, V>...};
}
template <int V>
constexpr auto kConvMicro = conv_micro_table<V>(std::make_integer_sequence<int, kRows>());

// to[0, n) = widened from[0, n).
template <typename S>
HWY_INLINE void copy_row(const S* HWY_RESTRICT from, int64_t n, float* HWY_RESTRICT to) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) copy_wide<16>(from + i, to + i);
  for (; i + 4 <= n; i += 4) copy_wide<4>(from + i, to + i);
  for (; i < n; ++i) to[i] = widen(from[i]);
}

/// One thread's work.
class ConvThread {
 public:
  ConvThread(const DirectConv& conv, const void* x, const void* k, void* y, const float* panels,
             float* strip, const std::vector<Segment>& segments)
      : c_(conv), x_(x), k_(k), y_(y), panels_(panels), strip_(strip), segments_(segments) {}

  void run(int64_t task) {
    const ConvAxis &d = c_.axes[0], &h = c_.axes[1], &w = c_.axes[2];
    const auto take = [&](int64_t extent) {
      const int64_t i = task % extent;
      task /= extent;
      return i;
    };
    const int64_t w0 = take((w.out + c_.block_w - 1) / c_.block_w) * c_.block_w;
    const int64_t h0 = take((h.out + c_.block_h - 1) / c_.block_h) * c_.block_h;
    const int64_t d0 = take(d.out), group = take(c_.groups), image = take(c_.images);
    const int64_t w1 = std::min(w0 + c_.block_w, w.out), h1 = std::min(h0 + c_.block_h, h.out);
    fill(image * c_.x_image + group * c_.x_group, d0, h0, h1, w0, w1);
    const int64_t to = image * c_.y_image + group * c_.y_group + d0 * d.y_stride;
    const int64_t windows = w1 - w0, pieces = (windows + kRows - 1) / kRows;
    for (int64_t j = 0; j < c_.features; j += kConvCols)
      for (int64_t row = h0; row < h1; ++row)
        for (int64_t i = 0; i < pieces; ++i) {
          const int64_t first = windows * i / pieces, last = windows * (i + 1) / pieces;
          const int64_t at =
              ((row - h0) * h.stride * c_.strip_width + first * w.stride) * c_.channels;
          multiply(group, j, strip_ + at, last - first,
                   to + row * h.y_stride + (w0 + first) * w.y_stride);
        }
  }

 private:
  // Features [j, j + kConvCols) of `rows` windows, to y from `to` on.
  void multiply(int64_t group, int64_t j, const float* a, int64_t rows, int64_t to) {
    const int64_t cols = std::min<int64_t>(kConvCols, c_.features - j);
    ConvMicroArgs args{segments_.data(), static_cast<int64_t>(segments_.size()), a,
                       c_.axes[2].stride * c_.channels * static_cast<int64_t>(sizeof(float)),
                       nullptr, kConvCols, nullptr, kConvCols, cols};
    if (c_.panels_bytes == 0) {
      args.b = static_cast<const float*>(k_) + group * c_.k_group + j;
      args.b_stride = c_.k_channel;
    } else {
      const int64_t columns = (c_.features + kConvCols - 1) / kConvCols * kConvCols;
      args.b = panels_ + (group * columns + j) * c_.depth();
    }
    const ConvMicroFn run = cols > kLanesOf<float> ? kConvMicro<2>[static_cast<size_t>(rows - 1)]
                                                   : kConvMicro<1>[static_cast<size_t>(rows - 1)];
    const int64_t step = c_.axes[2].y_stride;
    to += j * c_.y_feature;
    if (c_.y == DType::kF32 && c_.y_feature == 1) {
      args.out = static_cast<float*>(y_) + to;
      args.out_stride = step;
      return run(args);
    }
    HWY_ALIGN float tile[kRows * kConvCols];
    args.out = tile;
    run(args);
    if (step == 1) return put_transposed(tile, to, rows, cols);
    int64_t row_at[kRows], col_at[kConvCols];
    for (int64_t r = 0; r < rows; ++r) row_at[r] = r * step;
    for (int64_t f = 0; f < cols; ++f) col_at[f] = f * c_.y_feature;
    put(c_.y, tile, y_, to, row_at, rows, col_at, cols, c_.y_feature == 1, false);
  }

  // A tile whose windows are adjacent in y: a feature at a time, as features may be pages apart.
  void put_transposed(const float* tile, int64_t to, int64_t rows, int64_t cols) {
    const auto into = [&](auto* y) {
      for (int64_t f = 0; f < cols; ++f)
        for (int64_t r = 0; r < rows; ++r) narrow(tile[r * kConvCols + f], y[f * c_.y_feature + r]);
    };
    switch (c_.y) {
      case DType::kBF16: return into(static_cast<Bf16*>(y_) + to);
      case DType::kF16: return into(static_cast<F16*>(y_) + to);
      default: return into(static_cast<float*>(y_) + to);
    }
  }

  // Fills the strip with the inputs that windows [h0, h1) by [w0, w1) reach.
  void fill(int64_t from, int64_t d0, int64_t h0, int64_t h1, int64_t w0, int64_t w1) {
    switch (c_.x) {
      case DType::kBF16: return fill_of<Bf16>(from, d0, h0, h1, w0, w1);
      case DType::kF16: return fill_of<F16>(from, d0, h0, h1, w0, w1);
      default: return fill_of<float>(from, d0, h0, h1, w0, w1);
    }
  }
  template <typename S>
  void fill_of(int64_t from, int64_t d0, int64_t h0, int64_t h1, int64_t w0, int64_t w1) {
    const ConvAxis &d = c_.axes[0], &h = c_.axes[1], &w = c_.axes[2];
    const int64_t rows = (h1 - h0 - 1) * h.stride + (h.taps - 1) * h.dilation + 1;
    const int64_t width = (w1 - w0 - 1) * w.stride + (w.taps - 1) * w.dilation + 1;
    const int64_t left = w0 * w.stride - w.low;  // where the strip begins
    const int64_t w_first = std::clamp<int64_t>(-left, 0, width);
    const int64_t w_last = std::clamp(w.in - left, w_first, width);
    const int64_t channels = c_.channels, line = c_.strip_width * channels;
    for (int64_t t = 0; t < d.taps; ++t) {
      const int64_t z = d0 * d.stride - d.low + t * d.dilation;
      for (int64_t r = 0; r < rows; ++r) {
        float* const to = strip_ + (t * c_.strip_rows + r) * line;
        const int64_t y = h0 * h.stride - h.low + r;
        // No window reads a row between dilated places.
        if (h.stride % h.dilation == 0 && r % h.dilation != 0) continue;
        if (z < 0 || z >= d.in || y < 0 || y >= h.in || w_first == w_last) {
          std::fill(to, to + width * channels, 0.0f);
          continue;
        }
        const S* const x = static_cast<const S*>(x_) + from + z * d.x_stride + y * h.x_stride +
                           (left + w_first) * w.x_stride;
        std::fill(to, to + w_first * channels, 0.0f);
        copy_windows(x, w_last - w_first, to + w_first * channels);
        std::fill(to + w_last * channels, to + width * channels, 0.0f);
      }
    }
  }

  // n elements of the last axis with their channels.
  template <typename S>
  void copy_windows(const S* x, int64_t n, float* to) {
    const int64_t channels = c_.channels, x_channel = c_.x_channel, x_stride = c_.axes[2].x_stride;
    if (x_channel == 1 && x_stride == channels) {
      copy_row(x, n * channels, to);
    } else if (x_channel == 1) {
      for (int64_t i = 0; i < n; ++i) copy_row(x + i * x_stride, channels, to + i * channels);
    } else {
      // Lines of memory run along the windows: a few of each channel at a time.
      constexpr int64_t kFew = 16;
      for (int64_t i0 = 0; i0 < n; i0 += kFew) {
        const int64_t i1 = std::min(i0 + kFew, n);
        for (int64_t ch = 0; ch < channels; ++ch)
          for (int64_t i = i0; i < i1; ++i)
            to[i * channels + ch] = widen(x[i * x_stride + ch * x_channel]);
      }
    }
  }

  const DirectConv& c_;
  const void *x_, *k_;
  void* y_;
  const float* panels_;
  float* strip_;
  const std::vector<Segment>& segments_;
};

// The flat k, places outermost, as runs in the strip.
std::vector<Segment> segments_of(const DirectConv& c) {
  const ConvAxis &d = c.axes[0], &h = c.axes[1], &w = c.axes[2];
  const bool whole_rows = w.dilation == 1;  // places of a row lie side by side
  const int64_t run = whole_rows ? w.taps * c.channels : c.channels;
  std::vector<Segment> segments;
  int64_t k = 0;
  for (int64_t z = 0; z < d.taps; ++z)
    for (int64_t y = 0; y < h.taps; ++y)
      for (int64_t x = 0; x < (whole_rows ? 1 : w.taps); ++x) {
        const int64_t at =
            ((z * c.strip_rows + y * h.dilation) * c.strip_width + x * w.dilation) * c.channels;
        for (int64_t done = 0; done < run;) {
          const int64_t n = std::min(run - done, kGemmBlockK - k % kGemmBlockK);
          k += n;
          segments.push_back({at + done, n, k % kGemmBlockK == 0 || k == c.depth()});
          done += n;
        }
      }
  return segments;
}

// The kernel of a group in panels of kConvCols features, [k, kConvCols] each.
void pack_kernel(const DirectConv& c, const void* kernel, int64_t group, float* panels) {
  std::vector<int64_t> ks, features;
  const ConvAxis &d = c.axes[0], &h = c.axes[1], &w = c.axes[2];
  for (int64_t z = 0; z < d.taps; ++z)
    for (int64_t y = 0; y < h.taps; ++y)
      for (int64_t x = 0; x < w.taps; ++x)
        for (int64_t ch = 0; ch < c.channels; ++ch)
          ks.push_back(z * d.k_stride + y * h.k_stride + x * w.k_stride + ch * c.k_channel);
  for (int64_t f = 0; f < c.features; ++f) features.push_back(f * c.k_feature);
  pack<kConvCols>(c.k, kernel, group * c.k_group, features.data(), c.features, ks.data(), c.depth(),
                  panels);
}

void run_direct_conv(const DirectConv& c, const void* x, const void* k, void* y, void* scratch) {
  char* const at = static_cast<char*>(scratch);
  float* const panels = reinterpret_cast<float*>(at);
  if (c.panels_bytes > 0) {
    const int64_t columns = (c.features + kConvCols - 1) / kConvCols * kConvCols;
    kernels::parallel_for(c.threads, c.groups, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t g = begin; g < end; ++g) pack_kernel(c, k, g, panels + g * columns * c.depth());
    });
  }
  const std::vector<Segment> segments = segments_of(c);
  kernels::parallel_for(c.threads, c.tasks, 1, [&](int64_t begin, int64_t end, int thread) {
    float* const strip = reinterpret_cast<float*>(at + c.panels_bytes + thread * c.strip_bytes);
    ConvThread work(c, x, k, y, panels, strip, segments);
    for (int64_t task = begin; task < end; ++task) work.run(task);
  });
}

}  // namespace stow::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stow::cpu {

HWY_EXPORT(run_direct_conv);

void run_direct(const DirectConv& conv, const void* x, const void* k, void* y, void* scratch) {
  HWY_DYNAMIC_DISPATCH(run_direct_conv)(conv, x, k, y, scratch);
}

}  // namespace stow::cpu
#endif
