// Tiles of bf16 for the instructions that multiply them (AMX): packs operands as tiles, and
// multiplies panels of tiles.
// Not for other machines: include it only where __x86_64__ and __GNUC__ are defined, and call it
// only if can_multiply_tiles() (gemm_thread.h).
#pragma once

#include "stowage/runtime/cpu/kernels/pairs.h"

// Stands on every function that uses tiles: the compiler may use these instructions in no other
// code.
#define STOW_AMX                                                                              \
  __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma,amx-tile,amx-bf16")))

namespace stow::cpu::amx {

inline constexpr int64_t kTile = 16;         // rows of a tile, and words (pairs of bf16) of a row
inline constexpr int64_t kSide = 2 * kTile;  // rows and columns of the result of one multiply()
inline constexpr int64_t kStep = kSide * kTile;  // words from 16 pairs of a panel to its next 16

/// Shapes of the tiles of the product out += left * right: rows, and bytes of a row. Tile registers
/// 0 to 3 are for `out`, 4 and 5 for `left`, 6 and 7 for `right`.
struct TileShapes {
  uint8_t out_rows = kTile, left_rows = kTile, right_rows = kTile;
  uint16_t out_bytes = 64, left_bytes = 64, right_bytes = 64;
};

/// Configures the tile registers of the calling thread; its destructor releases them.
class Tiles {
 public:
  STOW_AMX explicit Tiles(const TileShapes& of = {}) {
    alignas(64) struct {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t bytes[16] = {};
      uint8_t rows[16] = {};
    } config;
    for (int i = 0; i < 8; ++i) {
      config.bytes[i] = i < 4 ? of.out_bytes : i < 6 ? of.left_bytes : of.right_bytes;
      config.rows[i] = i < 4 ? of.out_rows : i < 6 ? of.left_rows : of.right_rows;
    }
    // GCC 12 believes that the instruction reads only eight bytes of `config`.
    __asm__ volatile("" : : "r"(&config) : "memory");
    _tile_loadconfig(&config);
  }
  STOW_AMX ~Tiles() { _tile_release(); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
};

// Packs a tile of 16 rows, dst[row][16 pairs]. Row r at k is src[rows[r] + ks[k]]; rows beyond n
// and k beyond kc are zeros. `adjacent`: the rows' offsets are consecutive; `along_k`: those of k
// are.
template <pairs::EarlierK kEarlier>
STOW_BF16 inline void pack_tile(const uint16_t* src, const int64_t* rows, int64_t n, bool adjacent,
                                const int64_t* ks, int64_t kc, bool along_k, uint32_t* dst) {
  if (n <= 0) {
    std::fill_n(dst, kTile * kTile, 0u);
    return;
  }
  if (along_k) {
    const __mmask32 mask = pairs::first32(kc);
    for (int64_t r = 0; r < kTile; ++r) {
      __m512i x =
          r < n ? _mm512_maskz_loadu_epi16(mask, src + rows[r] + ks[0]) : _mm512_setzero_si512();
      if constexpr (kEarlier == pairs::EarlierK::kHigh) x = _mm512_rol_epi32(x, 16);
      _mm512_storeu_si512(dst + r * kTile, x);
    }
    return;
  }
  if (adjacent) {
    const __mmask16 mask = pairs::first16(n);
    __m512i v[kTile];
    for (int64_t i = 0; i < kTile; ++i) {
      const auto row = [&](int64_t k) STOW_BF16 {
        return k < kc ? _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, src + rows[0] + ks[k]))
                      : _mm512_setzero_si512();
      };
      const __m512i earlier = row(2 * i), later = row(2 * i + 1);
      v[i] = kEarlier == pairs::EarlierK::kHigh
                 ? _mm512_or_si512(_mm512_slli_epi32(earlier, 16), later)
                 : _mm512_or_si512(_mm512_slli_epi32(later, 16), earlier);
    }
    pairs::transpose_16x16(v);
    for (int64_t r = 0; r < kTile; ++r) _mm512_storeu_si512(dst + r * kTile, v[r]);
    return;
  }
  for (int64_t r = 0; r < kTile; ++r)
    for (int64_t i = 0; i < kTile; ++i) {
      const auto word = [&](int64_t k) -> uint32_t {
        return r < n && k < kc ? src[rows[r] + ks[k]] : 0;
      };
      dst[r * kTile + i] = pairs::as_pair<kEarlier>(word(2 * i), word(2 * i + 1));
    }
}

/// Packs n rows of kc elements into panels of kSide rows, in tiles whose rows are rows of the
/// operand: dst[panel][step of 16 pairs][upper, lower 16 rows][row][pair]. Otherwise as
/// pairs::pack_pairs(); zeros fill up rows and pairs.
template <pairs::EarlierK kEarlier>
inline void pack_rows(const uint16_t* src, const int64_t* rows, int64_t n, const int64_t* ks,
                      int64_t kc, uint32_t* dst) {
  const bool along_k = pairs::is_run(ks, kc);
  for (int64_t p = 0; p < n; p += kSide)
    for (int64_t k = 0; k < kc; k += 2 * kTile)
      for (int64_t first = p; first < p + kSide; first += kTile, dst += kTile * kTile) {
        const int64_t w = std::min(kTile, n - first);
        pack_tile<kEarlier>(src, rows + first, w, w > 0 && pairs::is_run(rows + first, w), ks + k,
                            std::min(2 * kTile, kc - k), along_k, dst);
      }
}

/// As PairPacking, for tiles: the left operand as rows of pairs, the right one as by pack_pairs().
/// AMX takes either half of a word as the earlier k, as long as both operands agree.
template <pairs::EarlierK kEarlier>
struct TilePacking {
  static constexpr int64_t kRows = kSide, kCols = kSide, kPairUnit = kTile;
  using Element = uint16_t;
  static constexpr int64_t kParts = 1, kFetches = 1;
  static constexpr bool kMarks = false, kInterleaves = false, kReadsRows = true;
  static void pack_left(const uint16_t* src, const int64_t* rows, int64_t n, const int64_t* ks,
                        int64_t kc, uint32_t* dst) {
    pack_rows<kEarlier>(src, rows, n, ks, kc, dst);
  }
  static void pack_right(const uint16_t* src, const int64_t* rows, int64_t n, const int64_t* ks,
                         int64_t kc, uint32_t* dst) {
    pairs::pack_pairs<kCols, kPairUnit, kEarlier>(src, rows, n, ks, kc, dst);
  }
};

/// out[32][32] = prev + a * b; without prev, a * b. Strides are in words or floats. Row r of `a`
/// begins at a + r * a_stride and holds 16 pairs; its next 16 pairs are a_step words further. `b`
/// is [pairs][b_stride], of which 32 columns are used. A step takes 16 pairs: the products of the
/// earlier k and those of the later k are summed separately, then added to each other and to the
/// total. Calls fetch() once a step.
template <typename Fetch>
STOW_AMX inline void multiply(int64_t pairs, const uint32_t* a, int64_t a_stride, int64_t a_step,
                              const uint32_t* b, int64_t b_stride, const float* prev,
                              int64_t prev_stride, float* out, int64_t out_stride,
                              const Fetch& fetch) {
  // Keeps ordinary stores before the tile loads: the compiler does not know that tiles read memory.
  __asm__ volatile("" ::: "memory");
  if (prev) {
    _tile_loadd(0, prev, prev_stride * 4);
    _tile_loadd(1, prev + kTile, prev_stride * 4);
    _tile_loadd(2, prev + kTile * prev_stride, prev_stride * 4);
    _tile_loadd(3, prev + kTile * prev_stride + kTile, prev_stride * 4);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t k = 0; k < pairs; k += kTile, a += a_step, b += kTile * b_stride) {
    _tile_loadd(4, a, a_stride * 4);
    _tile_loadd(6, b, b_stride * 4);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + kTile, b_stride * 4);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a + kTile * a_stride, a_stride * 4);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    fetch();
  }
  _tile_stored(0, out, out_stride * 4);
  _tile_stored(1, out + kTile, out_stride * 4);
  _tile_stored(2, out + kTile * out_stride, out_stride * 4);
  _tile_stored(3, out + kTile * out_stride + kTile, out_stride * 4);
  __asm__ volatile("" ::: "memory");
}

}  // namespace stow::cpu::amx
