// Packing: rows of any strides into panels [k][W], widened to the type of the sums.
// Not arithmetic: only moves and exact conversions, so it never touches a bit of the result.
#if defined(STOW_KERNELS_GEMM_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STOW_KERNELS_GEMM_PACK_INL_H_
#undef STOW_KERNELS_GEMM_PACK_INL_H_
#else
#define STOW_KERNELS_GEMM_PACK_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "stowage/core/dtype.h"
#include "stowage/runtime/cpu/kernels/half-inl.h"
#include "stowage/runtime/cpu/kernels/half.h"

HWY_BEFORE_NAMESPACE();
namespace stow::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Whether offsets[0, n) are consecutive.
inline bool is_run(const int64_t* offsets, int64_t n) {
  for (int64_t i = 1; i < n; ++i)
    if (offsets[i] != offsets[0] + i) return false;
  return true;
}

// dst[0, W) = widened src[0, W), in vectors of decreasing size that never read past src[W).
template <int W, typename T, typename S>
HWY_INLINE void copy_wide(const S* HWY_RESTRICT src, T* HWY_RESTRICT dst) {
  constexpr int kMost = static_cast<int>(hn::MaxLanes(hn::ScalableTag<T>()));
  constexpr int kStep = W >= kMost ? kMost : W >= 8 ? 8 : W >= 4 ? 4 : W >= 2 ? 2 : 1;
  if constexpr (W > 0 && !kHasSimd) {
    for (int i = 0; i < W; ++i) dst[i] = widen(src[i]);
  } else if constexpr (W > 0) {
    const hn::CappedTag<T, kStep> d;
    hn::StoreU(load_wide(d, src), d, dst);
    copy_wide<W - kStep>(src + kStep, dst + kStep);
  }
}

// dst[k][0, w) = src[k][0, w): k apart by offsets, columns adjacent.
template <int W, typename T, typename S>
HWY_INLINE void pack_straight(const S* src, int64_t w, const int64_t* ks, int64_t kc, T* dst) {
  if (w == W) {
    for (int64_t k = 0; k < kc; ++k) copy_wide<W>(src + ks[k], dst + k * W);
    return;
  }
  for (int64_t k = 0; k < kc; ++k) {
    const S* HWY_RESTRICT from = src + ks[k];
    T* HWY_RESTRICT to = dst + k * W;
    int64_t i = 0;
    for (; i + 4 <= w; i += 4) copy_wide<4>(from + i, to + i);
    for (; i < w; ++i) to[i] = widen(from[i]);
  }
}

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
// Turns a 4 x 4 block held as rows v0..v3.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void turn_4x4(D d, V& v0, V& v1, V& v2, V& v3) {
  const hn::Repartition<double, D> d64;
  const auto l01 = hn::BitCast(d64, hn::InterleaveLower(d, v0, v1));
  const auto l23 = hn::BitCast(d64, hn::InterleaveLower(d, v2, v3));
  const auto u01 = hn::BitCast(d64, hn::InterleaveUpper(d, v0, v1));
  const auto u23 = hn::BitCast(d64, hn::InterleaveUpper(d, v2, v3));
  v0 = hn::BitCast(d, hn::InterleaveLower(d64, l01, l23));
  v1 = hn::BitCast(d, hn::InterleaveUpper(d64, l01, l23));
  v2 = hn::BitCast(d, hn::InterleaveLower(d64, u01, u23));
  v3 = hn::BitCast(d, hn::InterleaveUpper(d64, u01, u23));
}

// Four adjacent elements from each of four rows, into dst[k][0, 4) for four k, W apart.
template <int W, typename S>
HWY_INLINE void pack_4x4(const S* r0, const S* r1, const S* r2, const S* r3, float* dst) {
  const hn::FixedTag<float, 4> d;
  auto v0 = load_wide(d, r0), v1 = load_wide(d, r1), v2 = load_wide(d, r2), v3 = load_wide(d, r3);
  turn_4x4(d, v0, v1, v2, v3);
  hn::StoreU(v0, d, dst);
  hn::StoreU(v1, d, dst + W);
  hn::StoreU(v2, d, dst + 2 * W);
  hn::StoreU(v3, d, dst + 3 * W);
}
#endif

// dst[k][0, w) from w rows at any offsets; fast where k advances by single steps.
template <int W, typename T, typename S>
HWY_INLINE void pack_turned(const S* src, const int64_t* rows, int64_t w, const int64_t* ks,
                            int64_t kc, T* dst) {
  int64_t r = 0;
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  if constexpr (std::is_same_v<T, float>) {
    for (; r + 4 <= w; r += 4) {
      const S *r0 = src + rows[r], *r1 = src + rows[r + 1];
      const S *r2 = src + rows[r + 2], *r3 = src + rows[r + 3];
      int64_t k = 0;
      for (; k + 4 <= kc; k += 4) {
        const int64_t o = ks[k];
        T* to = dst + k * W + r;
        if (ks[k + 1] == o + 1 && ks[k + 2] == o + 2 && ks[k + 3] == o + 3) {
          pack_4x4<W>(r0 + o, r1 + o, r2 + o, r3 + o, to);
        } else {
          for (int i = 0; i < 4; ++i, to += W) {
            const int64_t q = ks[k + i];
            to[0] = widen(r0[q]), to[1] = widen(r1[q]), to[2] = widen(r2[q]), to[3] = widen(r3[q]);
          }
        }
      }
      for (; k < kc; ++k) {
        T* to = dst + k * W + r;
        const int64_t q = ks[k];
        to[0] = widen(r0[q]), to[1] = widen(r1[q]), to[2] = widen(r2[q]), to[3] = widen(r3[q]);
      }
    }
  }
#endif
  for (; r < w; ++r) {
    const S* row = src + rows[r];
    for (int64_t k = 0; k < kc; ++k) dst[k * W + r] = widen(row[ks[k]]);
  }
}

/// Packs n rows, at `src + rows[i]`, of kc elements, at `+ ks[k]`, into panels of W rows:
/// dst[panel][k][W]; rows that are missing from the last panel are zero.
template <int W, typename T, typename S>
HWY_NOINLINE void pack_panels(const S* src, const int64_t* rows, int64_t n, const int64_t* ks,
                              int64_t kc, T* dst) {
  for (int64_t p = 0; p < n; p += W, rows += W, dst += kc * W) {
    const int64_t w = std::min<int64_t>(W, n - p);
    if (w < W)
      for (int64_t k = 0; k < kc; ++k) std::fill(dst + k * W + w, dst + (k + 1) * W, T(0));
    if (is_run(rows, w)) pack_straight<W>(src + rows[0], w, ks, kc, dst);
    else pack_turned<W>(src, rows, w, ks, kc, dst);
  }
}

/// pack_panels for an operand of dtype t at `base` + `offset` elements.
template <int W, typename T>
void pack(DType t, const void* base, int64_t offset, const int64_t* rows, int64_t n,
          const int64_t* ks, int64_t kc, T* dst) {
  if constexpr (sizeof(T) == 4) {
    if (t == DType::kBF16)
      return pack_panels<W>(static_cast<const Bf16*>(base) + offset, rows, n, ks, kc, dst);
    if (t == DType::kF16)
      return pack_panels<W>(static_cast<const F16*>(base) + offset, rows, n, ks, kc, dst);
  }
  pack_panels<W>(static_cast<const T*>(base) + offset, rows, n, ks, kc, dst);
}

}  // namespace stow::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
