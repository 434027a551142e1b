#include "stowage/runtime/cpu/kernels/window_rows.h"

#include "stowage/runtime/cpu/kernels/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stowage/runtime/cpu/kernels/window_rows.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <limits>
#include <type_traits>

#include "stowage/runtime/cpu/kernels/fold-inl.h"

// The loops are simple and of fixed lengths where it matters, for the compiler to make vectors of.
HWY_BEFORE_NAMESPACE();
namespace stow::cpu::HWY_NAMESPACE {

// True for a dtype whose loops are compiled for each instruction set.
template <typename T>
inline constexpr bool has_own_loops =
    std::is_floating_point_v<Acc<T>> || std::is_same_v<T, int32_t>;

constexpr int64_t kTogether = 32;  // lanes computed together
constexpr int64_t kLine = 256;     // results of a line

template <typename Op, typename T>
void fold_vectors(const WindowRow& r, const WindowTaps& taps, const T* x, T* y);

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
// kTogether adjacent lanes of floats, in registers.
template <typename Op, typename T>
HWY_INLINE void fold_vectors(const WindowRow& r, const WindowTaps& taps, const T* x, T* y) {
  const hn::ScalableTag<Acc<T>> d;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(d)), kVectors = kTogether / kLanes;
  hn::Vec<decltype(d)> state[kVectors];
  HWY_UNROLL(8) for (int v = 0; v < kVectors; ++v) state[v] = hn::Set(d, Op::kIdentity);
  for (int64_t b = 0; b < r.n_bases; ++b) {
    const T* from = x + r.x_bases[b] + taps.index * r.x_inner;
    for (int64_t t = 0; t < taps.count; ++t, from += r.inner_step * r.x_inner) {
      HWY_UNROLL(8) for (int v = 0; v < kVectors; ++v) {
        state[v] = Op::steps(state[v], load_wide(d, from + v * kLanes));
      }
    }
  }
  HWY_UNROLL(8) for (int v = 0; v < kVectors; ++v) store_narrow(state[v], d, y + v * kLanes);
}

// to[i] = from[2 * i], of n.
inline void load_every_other(const float* from, int64_t n, float* to) {
  const hn::ScalableTag<float> d;
  constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(d));
  int64_t i = 0;
  for (; i + kLanes < n; i += kLanes) {
    hn::Vec<decltype(d)> even, odd;
    hn::LoadInterleaved2(d, from + 2 * i, even, odd);
    hn::StoreU(even, d, to + i);
  }
  for (; i < n; ++i) to[i] = from[2 * i];
}
#endif
template <typename T, typename A>
HWY_INLINE void load_every_other(const T* from, int64_t n, A* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = load_lane(from[2 * i]);
}

// n lanes from x on, of all taps of one result; kN is n where it is known.
template <typename Op, typename T, int64_t kN, bool kUnit>
HWY_INLINE void fold_lanes(const WindowRow& r, const WindowTaps& taps, const T* x, int64_t n_lanes,
                           T* y) {
  using A = Acc<T>;
  const int64_t n = kN > 0 ? kN : n_lanes, lane = kUnit ? 1 : r.x_lane;
  if constexpr (kHasSimd && std::is_floating_point_v<A> && kN == kTogether && kUnit)
    return fold_vectors<Op>(r, taps, x, y);
  A state[kTogether];
  for (int64_t l = 0; l < n; ++l) state[l] = Op::kIdentity;
  for (int64_t b = 0; b < r.n_bases; ++b) {
    const T* HWY_RESTRICT from = x + r.x_bases[b] + taps.index * r.x_inner;
    for (int64_t t = 0; t < taps.count; ++t, from += r.inner_step * r.x_inner)
      for (int64_t l = 0; l < n; ++l) state[l] = Op::step(state[l], load_lane(from[l * lane]));
  }
  const int64_t to = kUnit ? 1 : r.y_lane;
  for (int64_t l = 0; l < n; ++l) store_lane(state[l], y[l * to]);
}

// True if results [o0, o0 + n) of a line all read taps t - 3 to t, and these are evenly spaced (for
// results that follow each other in the operand).
inline bool spans(const WindowRow& r, int64_t t, int64_t o0, int64_t n) {
  if (t >= r.n_line) return false;
  for (int64_t i = t - 3; i <= t; ++i) {
    const WindowLineTap& tap = r.line[i];
    if (tap.first > o0 || tap.first + tap.count < o0 + n) return false;
    // A tap whose first reader is not result 0 begins at an element that is that many further on.
    if (i > t - 3 && (tap.first != r.line[i - 1].first ||
                      tap.index - r.line[i - 1].index != r.line[t - 2].index - r.line[t - 3].index))
      return false;
  }
  return true;
}

template <typename Op, typename T>
void fold_row(const WindowRow& r, const T* x, T* y) {
  using A = Acc<T>;
  if (r.line == nullptr) {
    const bool unit = r.x_lane == 1 && r.y_lane == 1;
    for (int64_t o = 0; o < r.n_inner; ++o, y += r.y_inner)
      for (int64_t l = 0; l < r.lanes; l += kTogether) {
        const int64_t n = std::min(kTogether, r.lanes - l);
        const T* const from = x + l * r.x_lane;
        T* const to = y + l * r.y_lane;
        if (!unit) fold_lanes<Op, T, 0, false>(r, r.inner[o], from, n, to);
        else if (n == kTogether) fold_lanes<Op, T, kTogether, true>(r, r.inner[o], from, n, to);
        else fold_lanes<Op, T, 0, true>(r, r.inner[o], from, n, to);
      }
    return;
  }
  for (int64_t o0 = 0; o0 < r.line_outs; o0 += kLine) {
    const int64_t n = std::min(kLine, r.line_outs - o0);
    A state[kLine];
    std::fill_n(state, n, Op::kIdentity);
    for (int64_t b = 0; b < r.n_bases; ++b)
      for (int64_t t = 0; t < r.n_line; ++t) {
        const WindowLineTap& tap = r.line[t];
        const int64_t skipped =
            std::max<int64_t>((o0 - tap.first + r.line_step - 1) / r.line_step, 0);
        const int64_t last = (o0 + n - tap.first + r.line_step - 1) / r.line_step;
        const int64_t count = std::min(last, tap.count) - skipped;
        if (count <= 0) continue;
        const int64_t step = r.line_index_step * r.x_line, by = r.line_step;
        const T* HWY_RESTRICT from = x + r.x_bases[b] + tap.index * r.x_line + skipped * step;
        A* HWY_RESTRICT at = state + tap.first + skipped * by - o0;
        if (by == 1 && step == 1) {
          // Several taps at a time, if all of these results read them: results stay in registers.
          if (count == n && spans(r, t + 3, o0, n)) {
            const int64_t next = (r.line[t + 1].index - tap.index) * r.x_line;
            for (int64_t i = 0; i < n; ++i) {
              A sum = Op::step(at[i], load_lane(from[i]));
              sum = Op::step(sum, load_lane(from[i + next]));
              sum = Op::step(sum, load_lane(from[i + 2 * next]));
              at[i] = Op::step(sum, load_lane(from[i + 3 * next]));
            }
            t += 3;
          } else {
            for (int64_t i = 0; i < count; ++i) at[i] = Op::step(at[i], load_lane(from[i]));
          }
        } else if (by == 1) {
          A near[kLine];  // so that the arithmetic is done on vectors
          if (step == 2)
            load_every_other(from, count, near);
          else
            for (int64_t i = 0; i < count; ++i) near[i] = load_lane(from[i * step]);
          for (int64_t i = 0; i < count; ++i) at[i] = Op::step(at[i], near[i]);
        } else {
          for (int64_t i = 0; i < count; ++i)
            at[i * by] = Op::step(at[i * by], load_lane(from[i * step]));
        }
      }
    for (int64_t i = 0; i < n; ++i) store_lane(state[i], y[(o0 + i) * r.y_line]);
  }
}

HWY_INLINE void store_index(int64_t index, bool wide, void* y, int64_t at) {
  if (wide) static_cast<int64_t*>(y)[at] = index;
  else static_cast<int32_t*>(y)[at] = static_cast<int32_t>(index);
}

// As fold_lanes(), for the flat index of the first best element: finds its tap, then the index.
template <typename Op, typename T, int64_t kN, bool kUnit>
HWY_INLINE void find_lanes(const WindowRow& r, const WindowTaps& taps, const T* x, int64_t n_lanes,
                           int64_t first_flat, void* y, int64_t y_at, bool wide) {
  using A = Acc<T>;
  const int64_t n = kN > 0 ? kN : n_lanes, lane = kUnit ? 1 : r.x_lane;
  using Ordinal = std::conditional_t<sizeof(A) == 8, int64_t, int32_t>;
  A best[kTogether];
  Ordinal at[kTogether];
  if (r.n_bases == 0 || taps.count == 0) {
    for (int64_t l = 0; l < n; ++l) store_index(-1, wide, y, y_at + l * r.y_lane);
    return;
  }
  const T* const first = x + r.x_bases[0] + taps.index * r.x_inner;
  for (int64_t l = 0; l < n; ++l) {
    best[l] = load_lane(first[l * lane]);
    at[l] = 0;
  }
  Ordinal ordinal = 0;
  for (int64_t b = 0; b < r.n_bases; ++b) {
    const T* HWY_RESTRICT from = x + r.x_bases[b] + taps.index * r.x_inner;
    for (int64_t t = 0; t < taps.count; ++t, ++ordinal, from += r.inner_step * r.x_inner)
      for (int64_t l = 0; l < n; ++l) {
        const A value = load_lane(from[l * lane]);
        const bool takes = Op::beats(value, best[l]);
        best[l] = takes ? value : best[l];
        at[l] = takes ? ordinal : at[l];
      }
  }
  for (int64_t l = 0; l < n; ++l) {
    const int64_t flat = r.flat_bases[at[l] / taps.count] +
                         (taps.index + at[l] % taps.count * r.inner_step) * r.flat_inner +
                         first_flat + l * r.flat_lane;
    store_index(flat, wide, y, y_at + l * r.y_lane);
  }
}

template <typename Op, typename T>
void find_row(const WindowRow& r, const T* x, void* y, bool wide) {
  using A = Acc<T>;
  if (r.line == nullptr) {
    const bool unit = r.x_lane == 1;
    for (int64_t o = 0; o < r.n_inner; ++o)
      for (int64_t l = 0; l < r.lanes; l += kTogether) {
        const int64_t n = std::min(kTogether, r.lanes - l), to = o * r.y_inner + l * r.y_lane;
        const T* const from = x + l * r.x_lane;
        const int64_t flat = l * r.flat_lane;
        if (!unit) find_lanes<Op, T, 0, false>(r, r.inner[o], from, n, flat, y, to, wide);
        else if (n == kTogether)
          find_lanes<Op, T, kTogether, true>(r, r.inner[o], from, n, flat, y, to, wide);
        else find_lanes<Op, T, 0, true>(r, r.inner[o], from, n, flat, y, to, wide);
      }
    return;
  }
  for (int64_t o0 = 0; o0 < r.line_outs; o0 += kLine) {
    const int64_t n = std::min(kLine, r.line_outs - o0);
    A best[kLine] = {};
    int64_t at[kLine];
    std::fill_n(at, n, int64_t{-1});
    for (int64_t b = 0; b < r.n_bases; ++b)
      for (int64_t t = 0; t < r.n_line; ++t) {
        const WindowLineTap& tap = r.line[t];
        int64_t i = std::max<int64_t>((o0 - tap.first + r.line_step - 1) / r.line_step, 0);
        for (; i < tap.count && tap.first + i * r.line_step < o0 + n; ++i) {
          const int64_t o = tap.first + i * r.line_step - o0;
          const int64_t index = tap.index + i * r.line_index_step;
          const A value = load_lane(x[r.x_bases[b] + index * r.x_line]);
          if (at[o] >= 0 && !Op::beats(value, best[o])) continue;
          best[o] = value;
          at[o] = r.flat_bases[b] + index * r.flat_line;
        }
      }
    for (int64_t i = 0; i < n; ++i) store_index(at[i], wide, y, (o0 + i) * r.y_line);
  }
}

template <typename T>
void window_row_of(OpKind op, const WindowRow& r, const void* x, void* y, bool wide) {
  using A = Acc<T>;
  const T* const from = static_cast<const T*>(x);
  if (op == OpKind::kWindowSum) fold_row<SumOf<A>>(r, from, static_cast<T*>(y));
  else if (op == OpKind::kWindowMax) fold_row<MaxOf<A>>(r, from, static_cast<T*>(y));
  else if (op == OpKind::kWindowMin) fold_row<MinOf<A>>(r, from, static_cast<T*>(y));
  else if (op == OpKind::kWindowArgMax) find_row<MaxOf<A>>(r, from, y, wide);
  else find_row<MinOf<A>>(r, from, y, wide);
}

// Runs rows of floats and i32. Windows of the other dtypes are rare and compiled for one
// instruction set alone.
void run_window_row(OpKind op, DType dtype, const WindowRow& row, const void* x, void* y,
                    bool wide) {
  kernels::with_dtype(dtype, [&](auto t) {
    if constexpr (has_own_loops<decltype(t)>) window_row_of<decltype(t)>(op, row, x, y, wide);
  });
}

#if HWY_TARGET == HWY_STATIC_TARGET
void run_rare_window_row(OpKind op, DType dtype, const WindowRow& row, const void* x, void* y,
                         bool wide) {
  kernels::with_dtype(dtype, [&](auto t) {
    if constexpr (!has_own_loops<decltype(t)>) window_row_of<decltype(t)>(op, row, x, y, wide);
  });
}
#endif

}  // namespace stow::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stow::cpu {

HWY_EXPORT(run_window_row);

void window_row(OpKind op, DType dtype, const WindowRow& row, const void* x, void* y, bool wide) {
  const bool is_rare = kernels::with_dtype(dtype, [](auto t) {
    return !HWY_STATIC_DISPATCH(has_own_loops)<decltype(t)>;
  });
  if (is_rare)
    HWY_STATIC_DISPATCH(run_rare_window_row)(op, dtype, row, x, y, wide);
  else
    HWY_DYNAMIC_DISPATCH(run_window_row)(op, dtype, row, x, y, wide);
}

}  // namespace stow::cpu
#endif
