// Pairs of bf16 for the instructions that multiply them (AVX-512-BF16): packs operands as words of
// two bf16 with adjacent k, and rounds sums.
// Not for other machines: include it only where __x86_64__ and __GNUC__ are defined, and call it
// only if can_multiply_pairs().
#pragma once

// GCC 12 warns about the deliberately undefined registers in its own intrinsics.
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include <algorithm>
#include <cstdint>

#include "stowage/core/half.h"

// Stands on every function here: the compiler may use these instructions in no other code.
#define STOW_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma")))

namespace stow::cpu::pairs {

inline constexpr int64_t kLanes = 16;  // words of a vector

// Return the mask of the low n of 16 lanes, or of 32; n may be out of range.
STOW_BF16 inline __mmask16 first16(int64_t n) {
  return static_cast<__mmask16>(n >= 16 ? 0xffff : n <= 0 ? 0 : (1u << n) - 1);
}
STOW_BF16 inline __mmask32 first32(int64_t n) {
  return n >= 32 ? ~__mmask32{0} : n <= 0 ? 0 : (__mmask32{1} << n) - 1;
}

// True if offsets[0, n) are consecutive.
STOW_BF16 inline bool is_run(const int64_t* offsets, int64_t n) {
  if (n <= 1) return true;
  __m512i next =
      _mm512_add_epi64(_mm512_set1_epi64(offsets[0]), _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0));
  for (int64_t i = 0; i < n; i += 8) {
    const auto in = static_cast<__mmask8>(first16(n - i));
    if (_mm512_mask_cmpneq_epi64_mask(in, _mm512_maskz_loadu_epi64(in, offsets + i), next))
      return false;
    next = _mm512_add_epi64(next, _mm512_set1_epi64(8));
  }
  return true;
}

// Transposes the 16 x 16 block of words whose rows are v[0] to v[15].
STOW_BF16 inline void transpose_16x16(__m512i* v) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
  }
  for (int i = 0; i < 16; i += 4)
    for (int j = 0; j < 2; ++j) {
      v[i + 2 * j] = _mm512_unpacklo_epi64(t[i + j], t[i + j + 2]);
      v[i + 2 * j + 1] = _mm512_unpackhi_epi64(t[i + j], t[i + j + 2]);
    }
  // v[4 g + c]: column c of each 128-bit block, rows 4 g to 4 g + 3.
  for (int c = 0; c < 4; ++c) {
    const __m512i a = _mm512_shuffle_i32x4(v[c], v[4 + c], 0x88);
    const __m512i b = _mm512_shuffle_i32x4(v[c], v[4 + c], 0xdd);
    const __m512i d = _mm512_shuffle_i32x4(v[8 + c], v[12 + c], 0x88);
    const __m512i e = _mm512_shuffle_i32x4(v[8 + c], v[12 + c], 0xdd);
    t[c] = _mm512_shuffle_i32x4(a, d, 0x88);
    t[8 + c] = _mm512_shuffle_i32x4(a, d, 0xdd);
    t[4 + c] = _mm512_shuffle_i32x4(b, e, 0x88);
    t[12 + c] = _mm512_shuffle_i32x4(b, e, 0xdd);
  }
  for (int i = 0; i < 16; ++i) v[i] = t[i];
}

/// Half of a packed word that holds the earlier k of a pair. AVX-512-BF16 adds the product of the
/// high halves first, so its operands have the earlier k there. Two adjacent bf16 in memory have it
/// in the low half.
enum class EarlierK { kHigh, kLow };
template <EarlierK kEarlier>
constexpr uint32_t as_pair(uint32_t earlier, uint32_t later) {
  return kEarlier == EarlierK::kHigh ? earlier << 16 | later : later << 16 | earlier;
}

// Packs pairs [first, last) of a panel of w <= W rows into dst[pair][W]. Row r at k is
// src[ks[k] + r]; rows beyond w and k beyond kc are zeros.
template <int W, EarlierK kEarlier = EarlierK::kHigh>
STOW_BF16 void pack_straight(const uint16_t* src, int64_t w, const int64_t* ks, int64_t kc,
                             int64_t first, int64_t last, uint32_t* dst) {
  // Interleaves the elements of `low` and `high`: the first 16 of each, and the last 16 of each.
  const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  const __m512i first_half =
      _mm512_or_si512(lane, _mm512_slli_epi32(_mm512_or_si512(lane, _mm512_set1_epi32(32)), 16));
  const __m512i last_half = _mm512_add_epi32(first_half, _mm512_set1_epi32(16 << 16 | 16));
  constexpr int64_t kAhead = 33;  // k
  for (int64_t k = first; k < last; ++k) {
    if (2 * k + kAhead < kc) {
      _mm_prefetch(src + ks[2 * k + kAhead - 1], _MM_HINT_T0);
      _mm_prefetch(src + ks[2 * k + kAhead], _MM_HINT_T0);
    }
    const __m512i earlier = _mm512_maskz_loadu_epi16(first32(w), src + ks[2 * k]);
    const __m512i later = 2 * k + 1 < kc ? _mm512_maskz_loadu_epi16(first32(w), src + ks[2 * k + 1])
                                         : _mm512_setzero_si512();
    const __m512i &low = kEarlier == EarlierK::kLow ? earlier : later,
                  &high = kEarlier == EarlierK::kLow ? later : earlier;
    for (int64_t c = 0; c < W; c += kLanes)
      _mm512_mask_storeu_epi32(
          dst + k * W + c, first16(W - c),
          _mm512_permutex2var_epi16(low, c == 0 ? first_half : last_half, high));
  }
}

// Packs all pairs of a panel of w <= W rows whose k are adjacent in memory, by transposing blocks
// of 16 rows by 16 pairs. Prefetches the rows at offsets `next`, if not null.
template <int W, EarlierK kEarlier = EarlierK::kHigh>
STOW_BF16 void pack_transposed(const uint16_t* src, const int64_t* rows, int64_t w,
                               const int64_t* next, int64_t kc, uint32_t* dst) {
  const int64_t pairs = (kc + 1) / 2;
  for (int64_t c = 0; c < W; c += kLanes)
    for (int64_t k = 0; k < pairs; k += kLanes) {
      const __mmask32 mask = first32(kc - 2 * k);
      for (int64_t r = 0; next && r < kLanes; ++r)
        _mm_prefetch(src + next[c + r] + 2 * k, _MM_HINT_T0);
      __m512i v[kLanes];
      for (int64_t r = 0; r < kLanes; ++r) {
        v[r] = c + r < w ? _mm512_maskz_loadu_epi16(mask, src + rows[c + r] + 2 * k)
                         : _mm512_setzero_si512();
        if constexpr (kEarlier == EarlierK::kHigh) v[r] = _mm512_rol_epi32(v[r], 16);
      }
      transpose_16x16(v);
      for (int64_t i = 0; i < std::min(kLanes, pairs - k); ++i)
        _mm512_mask_storeu_epi32(dst + (k + i) * W + c, first16(W - c), v[i]);
    }
}

// Packs n rows of kc elements into panels of W rows, dst[panel][pair of k][W]. Row r at k is
// src[rows[r] + ks[k]]. The last panel is filled up with rows of zeros, and each panel with pairs
// of zeros to a multiple of kPairUnit pairs.
template <int W, int64_t kPairUnit = 1, EarlierK kEarlier = EarlierK::kHigh>
STOW_BF16 void pack_pairs(const uint16_t* src, const int64_t* rows, int64_t n, const int64_t* ks,
                          int64_t kc, uint32_t* dst) {
  const int64_t pairs = (kc + 1) / 2, padded = (pairs + kPairUnit - 1) / kPairUnit * kPairUnit;
  for (int64_t p = 0; p < n && pairs < padded; p += W)
    std::fill_n(dst + p * padded + pairs * W, (padded - pairs) * W, 0u);
  if (is_run(rows, n)) {
    // All panels for a few k at a time, as they share the cache lines of a k.
    constexpr int64_t kFew = 16;
    for (int64_t k = 0; k < pairs; k += kFew)
      for (int64_t p = 0; p < n; p += W)
        pack_straight<W, kEarlier>(src + rows[p], std::min<int64_t>(W, n - p), ks, kc, k,
                                   std::min(k + kFew, pairs), dst + p * padded);
    return;
  }
  const bool along_k = is_run(ks, kc);
  for (int64_t p = 0; p < n; p += W, rows += W, dst += padded * W) {
    const int64_t w = std::min<int64_t>(W, n - p);
    if (is_run(rows, w)) {
      pack_straight<W, kEarlier>(src + rows[0], w, ks, kc, 0, pairs, dst);
    } else if (along_k) {
      pack_transposed<W, kEarlier>(src + ks[0], rows, w,
                                   W > kLanes && p + 2 * W <= n ? rows + W : nullptr, kc, dst);
    } else {
      for (int64_t k = 0; k < pairs; ++k)
        for (int64_t r = 0; r < W; ++r) {
          const auto word = [&](int64_t at) -> uint32_t {
            return r < w && at < kc ? src[rows[r] + ks[at]] : 0;
          };
          dst[k * W + r] = as_pair<kEarlier>(word(2 * k), word(2 * k + 1));
        }
    }
  }
}

/// Packs both operands for kernels that multiply pairs: panels of kRows rows of the left operand
/// and of kCols columns of the right one. PairedThread (gemm_paired.h) explains the constants.
struct PairPacking {
  static constexpr int64_t kRows = 12, kCols = 32, kPairUnit = 1;
  using Element = uint16_t;
  static constexpr int64_t kParts = 1, kFetches = 1;
  static constexpr bool kMarks = false, kInterleaves = false, kReadsRows = false;
  static void pack_left(const uint16_t* src, const int64_t* rows, int64_t n, const int64_t* ks,
                        int64_t kc, uint32_t* dst) {
    pack_pairs<kRows>(src, rows, n, ks, kc, dst);
  }
  static void pack_right(const uint16_t* src, const int64_t* rows, int64_t n, const int64_t* ks,
                         int64_t kc, uint32_t* dst) {
    pack_pairs<kCols>(src, rows, n, ks, kc, dst);
  }
};

// Rounds 32 f32 to bf16 as narrow() does. Subnormal numbers take a slow path, since the instruction
// would make them zeros.
STOW_BF16 inline __m512i rounded(__m512 low, __m512 high) {
  constexpr int kSubnormal = 0x20;
  const __mmask16 rare = _kor_mask16(_mm512_fpclass_ps_mask(low, kSubnormal),
                                     _mm512_fpclass_ps_mask(high, kSubnormal));
  if (!rare) [[likely]]
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
  alignas(64) float from[2 * kLanes];
  alignas(64) Bf16 to[2 * kLanes];
  _mm512_store_ps(from, low);
  _mm512_store_ps(from + kLanes, high);
  for (int64_t i = 0; i < 2 * kLanes; ++i) narrow(from[i], to[i]);
  return _mm512_load_si512(to);
}

}  // namespace stow::cpu::pairs
