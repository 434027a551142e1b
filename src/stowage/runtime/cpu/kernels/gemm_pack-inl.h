// Packing: copies rows of any strides into panels [k][W], widened to the type of the sums.
// Not arithmetic: only moves and exact conversions.
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
#include "stowage/core/half.h"
#include "stowage/runtime/cpu/kernels/half-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stow::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// True if offsets[0, n) are consecutive.
inline bool is_run(const int64_t* offsets, int64_t n) {
  for (int64_t i = 1; i < n; ++i)
    if (offsets[i] != offsets[0] + i) return false;
  return true;
}

// True if load_wide() makes vectors of T from S.
template <typename T, typename S>
constexpr bool kLoadsWide = kHasSimd && (std::is_same_v<T, S> || std::is_same_v<T, float>);

// dst[0, W) = widened src[0, W), in vectors of decreasing size that never read past src[W).
template <int W, typename T, typename S>
HWY_INLINE void copy_wide(const S* HWY_RESTRICT src, T* HWY_RESTRICT dst) {
  constexpr int kMost = static_cast<int>(hn::MaxLanes(hn::ScalableTag<T>()));
  constexpr int kStep = W >= kMost ? kMost : W >= 8 ? 8 : W >= 4 ? 4 : W >= 2 ? 2 : 1;
  if constexpr (W > 0 && !kLoadsWide<T, S>) {
    for (int i = 0; i < W; ++i) dst[i] = static_cast<T>(widen(src[i]));
  } else if constexpr (W > 0) {
    const hn::CappedTag<T, kStep> d;
    hn::StoreU(load_wide(d, src), d, dst);
    copy_wide<W - kStep>(src + kStep, dst + kStep);
  }
}

// dst[k][r] = src[ks[k] + r] for r < w; zeros for r in [w, W).
template <int W, typename T, typename S>
HWY_INLINE void pack_straight(const S* src, int64_t w, const int64_t* ks, int64_t kc, T* dst) {
  if (w == W) {
    for (int64_t k = 0; k < kc; ++k) copy_wide<W>(src + ks[k], dst + k * W);
    return;
  }
  if constexpr (kHasSimd && std::is_same_v<T, S>) {
    const hn::ScalableTag<T> d;
    constexpr int kLanes = static_cast<int>(hn::MaxLanes(d));
    if constexpr (W % kLanes == 0) {
      for (int v = 0; v < W; v += kLanes) {
        const auto some = hn::FirstN(d, static_cast<size_t>(std::clamp<int64_t>(w - v, 0, kLanes)));
        for (int64_t k = 0; k < kc; ++k)
          hn::StoreU(hn::MaskedLoad(some, d, src + ks[k] + v), d, dst + k * W + v);
      }
      return;
    }
  }
  std::fill(dst, dst + kc * W, T(0));
  for (int64_t k = 0; k < kc; ++k) {
    const S* HWY_RESTRICT from = src + ks[k];
    T* HWY_RESTRICT to = dst + k * W;
    int64_t i = 0;
    for (; W >= 16 && i + 16 <= w; i += 16) copy_wide<16>(from + i, to + i);
    for (; i + 4 <= w; i += 4) copy_wide<4>(from + i, to + i);
    for (; i < w; ++i) to[i] = static_cast<T>(widen(from[i]));
  }
}

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
// Transposes the 4 x 4 block of lanes in each 128 bits of rows v0 to v3.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void transpose_4x4(D d, V& v0, V& v1, V& v2, V& v3) {
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

// Transposes the 4 x 4 block of 128-bit blocks of rows v0 to v3.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void transpose_blocks(D d, V& v0, V& v1, V& v2, V& v3) {
  const V a = hn::ConcatLowerLower(d, v2, v0), b = hn::ConcatLowerLower(d, v3, v1);
  const V e = hn::ConcatUpperUpper(d, v2, v0), f = hn::ConcatUpperUpper(d, v3, v1);
  v0 = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(b), a);
  v1 = hn::OddEvenBlocks(b, hn::SwapAdjacentBlocks(a));
  v2 = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(f), e);
  v3 = hn::OddEvenBlocks(f, hn::SwapAdjacentBlocks(e));
}

// Transposes the square block whose rows are the kLanes vectors of v: first inside 128-bit blocks,
// then the blocks themselves.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void transpose_square(D d, V* HWY_RESTRICT v) {
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(D()));
  HWY_UNROLL(4) for (int g = 0; g < kLanes; g += 4) {
    transpose_4x4(d, v[g], v[g + 1], v[g + 2], v[g + 3]);
  }
  if constexpr (kLanes == 8) {
    HWY_UNROLL(4) for (int i = 0; i < 4; ++i) {
      const V low = hn::ConcatLowerLower(d, v[i + 4], v[i]);
      v[i + 4] = hn::ConcatUpperUpper(d, v[i + 4], v[i]);
      v[i] = low;
    }
  } else if constexpr (kLanes == 16) {
    HWY_UNROLL(4) for (int i = 0; i < 4; ++i) {
      transpose_blocks(d, v[i], v[i + 4], v[i + 8], v[i + 12]);
    }
  }
}

// Transposes 12 rows of 16 lanes into 16 rows of 12, one after another without gaps: v[3 * i + j]
// then holds elements [16 * j, 16 * j + 16) of the 48 elements of rows [4 * i, 4 * i + 4).
template <class D, class V = hn::Vec<D>>
HWY_INLINE void transpose_12x16(D d, V* HWY_RESTRICT v) {
  HWY_UNROLL(4) for (int g = 0; g < 12; g += 4) {
    transpose_4x4(d, v[g], v[g + 1], v[g + 2], v[g + 3]);
  }
  // Now block i of v[4 * g + c] holds row 4 * i + c, elements from 4 * g on.
  transpose_blocks(d, v[0], v[4], v[8], v[1]);
  transpose_blocks(d, v[5], v[9], v[2], v[6]);
  transpose_blocks(d, v[10], v[3], v[7], v[11]);
  const V transposed[12] = {v[0], v[5], v[10], v[4], v[9], v[3],
                            v[8], v[2], v[7],  v[1], v[6], v[11]};
  HWY_UNROLL(12) for (int i = 0; i < 12; ++i) v[i] = transposed[i];
}

// Transposes kLanes adjacent elements, from rows[r] + at on, of R <= kLanes rows into dst[k * W +
// r]. A k whose vector is longer than R also writes elements of the next k, which are written
// afterwards; the very last k of a panel (`last`) does not.
template <int R, int W, typename S>
HWY_INLINE void pack_square(const S* const* rows, int64_t at, bool last, float* dst) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(d));
  V v[kLanes];
  HWY_UNROLL(16) for (int r = 0; r < kLanes; ++r) {
    if (r < R) v[r] = load_wide(d, rows[r] + at);
    else v[r] = hn::Zero(d);
  }
  if constexpr (R == 12 && W == 12 && kLanes == 16) {
    transpose_12x16(d, v);
    HWY_UNROLL(12) for (int i = 0; i < R; ++i) hn::StoreU(v[i], d, dst + i * kLanes);
    return;
  }
  transpose_square(d, v);
  HWY_UNROLL(16) for (int k = 0; k < kLanes - 1; ++k) hn::StoreU(v[k], d, dst + k * W);
  float* const end = dst + (kLanes - 1) * W;
  if (R == kLanes || !last) hn::StoreU(v[kLanes - 1], d, end);
  else hn::BlendedStore(v[kLanes - 1], hn::FirstN(d, R), d, end);
}

// As pack_square() for the last n < kLanes elements of each row.
template <int R, int W>
HWY_INLINE void pack_rest(const float* const* rows, int64_t at, int64_t n, float* dst) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(d));
  const auto some = hn::FirstN(d, static_cast<size_t>(n));
  V v[kLanes];
  for (int r = 0; r < kLanes; ++r)
    v[r] = r < R ? hn::MaskedLoad(some, d, rows[r] + at) : hn::Zero(d);
  transpose_square(d, v);
  for (int64_t k = 0; k < n - 1; ++k) hn::StoreU(v[k], d, dst + k * W);
  hn::BlendedStore(v[n - 1], hn::FirstN(d, R), d, dst + (n - 1) * W);
}
#endif

// Packs w <= W rows at any offsets into dst[k][W]; fast where k are adjacent in memory. Elements of
// dst beyond w are finite if the rows are.
template <int W, typename T, typename S>
HWY_INLINE void pack_transposed(const S* src, const int64_t* rows, int64_t w, const int64_t* ks,
                            int64_t kc, T* dst) {
  int64_t k = 0;
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  if constexpr (std::is_same_v<T, float>) {
    constexpr int kLanes = static_cast<int>(hn::MaxLanes(hn::ScalableTag<float>()));
    if (w >= 4 || w == W) {  // missing rows repeat the last one; their results are not used
      const S* at[W];
      for (int r = 0; r < W; ++r) at[r] = src + rows[std::min<int64_t>(r, w - 1)];
      constexpr int R = W < kLanes ? W : kLanes;
      int64_t transposed = 0;
      while (transposed + kLanes <= kc && is_run(ks + transposed, kLanes)) transposed += kLanes;
      const int64_t rest = kc - transposed;
      const bool whole = std::is_same_v<S, float> && rest > 0 && is_run(ks + transposed, rest);
      for (int r = 0; r < W; r += kLanes) {
        float* const to = dst + r;
        if (r >= w) {
          const hn::ScalableTag<float> d;
          for (k = 0; k < (whole ? kc : transposed); ++k) hn::StoreU(hn::Zero(d), d, to + k * W);
          continue;
        }
        for (k = 0; k < transposed; k += kLanes)
          pack_square<R, W>(at + r, ks[k], k + kLanes == kc, to + k * W);
        if constexpr (std::is_same_v<S, float>)
          if (whole) pack_rest<R, W>(at + r, ks[transposed], rest, to + transposed * W);
      }
      k = whole ? kc : transposed;
    }
  }
#endif
  if (w < W && k < kc) std::fill(dst + k * W, dst + kc * W, T(0));
  for (int64_t r = 0; r < w && k < kc; ++r) {
    const S* row = src + rows[r];
    for (int64_t i = k; i < kc; ++i) dst[i * W + r] = static_cast<T>(widen(row[ks[i]]));
  }
}

/// Packs n rows of kc elements, src[rows[i] + ks[k]], into panels of W rows, dst[panel][k][W]. The
/// rows that are missing from the last panel are finite if the others are.
template <int W, typename T, typename S>
HWY_NOINLINE void pack_panels(const S* src, const int64_t* rows, int64_t n, const int64_t* ks,
                              int64_t kc, T* dst) {
  // Adjacent rows: all panels for a few k at a time, as panels share the cache lines of a k.
  constexpr int64_t kFew = 16;
  const bool straight = is_run(rows, n);
  for (int64_t k = 0; straight && n > W && k < kc; k += kFew)
    for (int64_t p = 0; p + W <= n; p += W)
      pack_straight<W>(src + rows[p], W, ks + k, std::min(kFew, kc - k), dst + p * kc + k * W);
  const int64_t done = straight && n > W ? n / W * W : 0;
  rows += done, dst += done * kc;
  for (int64_t p = done; p < n; p += W, rows += W, dst += kc * W) {
    const int64_t w = std::min<int64_t>(W, n - p);
    if (is_run(rows, w)) pack_straight<W>(src + rows[0], w, ks, kc, dst);
    else pack_transposed<W>(src, rows, w, ks, kc, dst);
  }
}

/// As pack_panels() for an operand of dtype t that begins `offset` elements after `base`. Integers
/// are widened with their sign, or wrap if T is narrower.
template <int W, typename T>
void pack(DType t, const void* base, int64_t offset, const int64_t* rows, int64_t n,
          const int64_t* ks, int64_t kc, T* dst) {
  const auto from = [&](auto element, auto* to) {
    pack_panels<W>(static_cast<const decltype(element)*>(base) + offset, rows, n, ks, kc, to);
  };
  if constexpr (std::is_integral_v<T>) {
    switch (t) {
      case DType::kI8: return from(int8_t{}, dst);
      case DType::kU8: return from(uint8_t{}, dst);
      case DType::kI32:
        if constexpr (sizeof(T) == 8) return from(int32_t{}, dst);
        [[fallthrough]];
      case DType::kU32:
        if constexpr (sizeof(T) == 4)
          return from(float{}, reinterpret_cast<float*>(dst));  // as bits
        return from(uint32_t{}, dst);
      default: return from(uint64_t{}, dst);
    }
  } else {
    if (t == DType::kBF16) return from(Bf16{}, dst);
    if (t == DType::kF16) return from(F16{}, dst);
    if constexpr (sizeof(T) == 8)
      if (t == DType::kF32) return from(float{}, dst);
    return from(T{}, dst);
  }
}

}  // namespace stow::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
