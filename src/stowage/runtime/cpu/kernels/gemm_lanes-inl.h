// Products too small for a micro-kernel, computed in one lane each: the products of a batch, or the
// K blocks of a long dot product. Sums have the order of gemm_micro-inl.h.
// Not a driver: gemm_run-inl.h decides and finds the offsets.
#if defined(STOW_KERNELS_GEMM_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STOW_KERNELS_GEMM_LANES_INL_H_
#undef STOW_KERNELS_GEMM_LANES_INL_H_
#else
#define STOW_KERNELS_GEMM_LANES_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "stowage/runtime/cpu/kernels/gemm_micro-inl.h"
#include "stowage/runtime/cpu/kernels/gemm_pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stow::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kLaneElems = 256;  // most elements of A, B or C of a product in a lane

/// Offsets of the elements of one operand, or of C, in the order of memory. Element [i, j] has the
/// offset at[i * by_i + j * by_j].
struct LaneElements {
  int64_t at[kLaneElems];
  int64_t count = 0, by_i = 0, by_j = 0;

  void set(const int64_t* is, int64_t n_i, const int64_t* js, int64_t n_j) {
    const int64_t i_step = n_i > 1 ? std::abs(is[1] - is[0]) : INT64_MAX;
    const int64_t j_step = n_j > 1 ? std::abs(js[1] - js[0]) : INT64_MAX;
    const bool j_inner = j_step <= i_step;
    by_i = j_inner ? n_j : 1, by_j = j_inner ? 1 : n_i;
    for (int64_t i = 0; i < n_i; ++i)
      for (int64_t j = 0; j < n_j; ++j) at[i * by_i + j * by_j] = is[i] + js[j];
    count = n_i * n_j;
  }
};

/// Computes columns [j, j + N) of row i of kLanes products: c[i, j] = sum over k of a[i, k] * b[k,
/// j].
template <int N, typename T>
HWY_INLINE void lane_columns(const LaneElements& ae, const LaneElements& be, const LaneElements& ce,
                             const T* a, const T* b, T* c, int64_t i, int64_t j, int64_t k) {
  const hn::ScalableTag<T> d;
  constexpr int kLanes = kLanesOf<T>;
  hn::Vec<decltype(d)> acc[N];
  for (int n = 0; n < N; ++n) acc[n] = hn::Zero(d);
  for (int64_t l = 0; l < k; ++l) {
    const auto x = hn::Load(d, a + (i * ae.by_i + l * ae.by_j) * kLanes);
    for (int n = 0; n < N; ++n)
      acc[n] = mul_add(x, hn::Load(d, b + (l * be.by_i + (j + n) * be.by_j) * kLanes), acc[n]);
  }
  for (int n = 0; n < N; ++n)
    hn::Store(acc[n], d, c + (i * ce.by_i + (j + n) * ce.by_j) * kLanes);
}

/// Computes all rows and columns. a, b and c are [element][kLanes]; LaneElements numbers the
/// elements.
template <typename T>
HWY_NOINLINE void multiply_lanes(const LaneElements& ae, const LaneElements& be,
                                 const LaneElements& ce, const T* a, const T* b, T* c, int64_t m,
                                 int64_t n, int64_t k) {
  for (int64_t i = 0; i < m; ++i) {
    int64_t j = 0;
    for (; j + 4 <= n; j += 4) lane_columns<4>(ae, be, ce, a, b, c, i, j, k);
    if (n - j == 3) lane_columns<3>(ae, be, ce, a, b, c, i, j, k);
    else if (n - j == 2) lane_columns<2>(ae, be, ce, a, b, c, i, j, k);
    else if (n - j == 1) lane_columns<1>(ae, be, ce, a, b, c, i, j, k);
  }
}

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
/// c[at[b] + e] = tile[e][b] for elements e in [0, count) and lanes b in [0, lanes).
inline void store_transposed(const float* tile, int64_t count, float* c, const int64_t* at,
                             int64_t lanes) {
  const hn::ScalableTag<float> d;
  constexpr int kLanes = kLanesOf<float>;
  for (int64_t e = 0; e < count; e += kLanes) {
    const int64_t n = std::min<int64_t>(kLanes, count - e);
    hn::Vec<decltype(d)> v[kLanes];
    for (int64_t i = 0; i < kLanes; ++i)
      v[i] = i < n ? hn::Load(d, tile + (e + i) * kLanes) : hn::Zero(d);
    transpose_square(d, v);
    const auto some = hn::FirstN(d, static_cast<size_t>(n));
    for (int64_t b = 0; b < lanes; ++b) hn::BlendedStore(v[b], some, d, c + at[b] + e);
  }
}

/// Returns the dot product of `blocks` whole K blocks of adjacent elements. Each block is computed
/// in a lane; their sums are added in order.
template <typename A, typename B>
HWY_NOINLINE float dot_blocks(const A* a, const B* b, int64_t blocks) {
  const hn::ScalableTag<float> d;
  constexpr int kLanes = kLanesOf<float>;
  static_assert(kGemmBlockK % kLanes == 0);
  float total = 0;
  HWY_ALIGN float sums[kLanes];
  for (int64_t first = 0; first < blocks; first += kLanes) {
    const int64_t n = std::min<int64_t>(kLanes, blocks - first);
    auto acc = hn::Zero(d);
    for (int64_t k = 0; k < kGemmBlockK; k += kLanes) {
      hn::Vec<decltype(d)> x[kLanes], y[kLanes];
      HWY_UNROLL(16) for (int64_t r = 0; r < kLanes; ++r) {
        const int64_t at = (first + std::min(r, n - 1)) * kGemmBlockK + k;
        x[r] = load_wide(d, a + at);
      }
      transpose_square(d, x);
      HWY_UNROLL(16) for (int64_t r = 0; r < kLanes; ++r) {
        const int64_t at = (first + std::min(r, n - 1)) * kGemmBlockK + k;
        y[r] = load_wide(d, b + at);
      }
      transpose_square(d, y);
      HWY_UNROLL(16) for (int r = 0; r < kLanes; ++r) acc = hn::MulAdd(x[r], y[r], acc);
    }
    hn::Store(acc, d, sums);
    for (int64_t r = 0; r < n; ++r) total = first + r == 0 ? sums[0] : total + sums[r];
  }
  return total;
}
#endif

}  // namespace stow::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
