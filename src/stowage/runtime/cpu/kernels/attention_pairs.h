// Parts of attention on pairs of bf16: the register kernel, 2^x, and stores of its results.
// Not for other machines; see pairs.h.
#pragma once

#include <array>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "stowage/runtime/cpu/kernels/attention_plan.h"
#include "stowage/runtime/cpu/kernels/pairs.h"

namespace stow::cpu::pairs {

inline constexpr int kTileRows = 12, kTileCols = 32;
inline constexpr int64_t kKeyPairs = kKeyBlock / 2;
inline constexpr float kLog2E = 1.44269504f;

/// Addend of a tile's sums: nothing, the content of `out`, or that content times a factor for each
/// column.
enum class Onto { kNothing, kOut, kScaledOut };

/// Arguments of a kernel that multiplies packed rows of a by a panel b into a tile of out.
struct TileArgs {
  int64_t pairs;          // depth, in pairs of k
  const uint32_t *a, *b;  // word (row, pair) of a is at row * kRowStep + pair * kPairStep
  float* out;
  ptrdiff_t out_stride;
  const float* factors;   // of columns, for Onto::kScaledOut
  const int8_t *a_marks, *b_marks;  // null if packing makes no marks
};

/// out[r][c] = sum over pairs of a[r] * b[c], plus the addend, for R rows and 32 columns: one
/// accumulator for each element, from zero, pairs in order.
template <int64_t kRowStep, int64_t kPairStep, Onto kOnto, int R>
STOW_BF16 void tile(const TileArgs& args) {
  __m512 acc[R][2];
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r) acc[r][0] = acc[r][1] = _mm512_setzero_ps();
  const uint32_t *a = args.a, *b = args.b;
  for (int64_t k = args.pairs; k > 0; --k, a += kPairStep, b += kTileCols) {
    const __m512bh b0 = (__m512bh)_mm512_loadu_si512(b);
    const __m512bh b1 = (__m512bh)_mm512_loadu_si512(b + kLanes);
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      const __m512bh x = (__m512bh)_mm512_set1_epi32(static_cast<int>(a[r * kRowStep]));
      acc[r][0] = _mm512_dpbf16_ps(acc[r][0], x, b0);
      acc[r][1] = _mm512_dpbf16_ps(acc[r][1], x, b1);
    }
  }
  float* const out = args.out;
  const ptrdiff_t stride = args.out_stride;
  if constexpr (kOnto == Onto::kScaledOut) {
    const __m512 f0 = _mm512_load_ps(args.factors), f1 = _mm512_load_ps(args.factors + kLanes);
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      acc[r][0] = _mm512_fmadd_ps(_mm512_load_ps(out + r * stride), f0, acc[r][0]);
      acc[r][1] = _mm512_fmadd_ps(_mm512_load_ps(out + r * stride + kLanes), f1, acc[r][1]);
    }
  } else if constexpr (kOnto == Onto::kOut) {
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      acc[r][0] = _mm512_add_ps(_mm512_load_ps(out + r * stride), acc[r][0]);
      acc[r][1] = _mm512_add_ps(_mm512_load_ps(out + r * stride + kLanes), acc[r][1]);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r) {
    _mm512_store_ps(out + r * stride, acc[r][0]);
    _mm512_store_ps(out + r * stride + kLanes, acc[r][1]);
  }
}

template <int64_t kRowStep, int64_t kPairStep, Onto kOnto, int... R>
constexpr auto tile_table(std::integer_sequence<int, R...>) {
  return std::array{&tile<kRowStep, kPairStep, kOnto, R + 1>...};
}
template <int64_t kRowStep, int64_t kPairStep, Onto kOnto>
inline constexpr auto kTiles =
    tile_table<kRowStep, kPairStep, kOnto>(std::make_integer_sequence<int, kTileRows>());

// The loops of attention are templates over a class `Kernel` with these members:
//   kUnits          AttentionUnits: zeros fill up panels to multiples of them
//   Element         type of the tensors' elements
//   pack_left, pack_right   as in PairPacking: pack panels of kUnits.rows rows, or of kTileCols
//                   columns; they also write the marks of the rows if kUnits.parts > 1
//   multiply<Onto>  multiplies two packed panels; may also write the padding rows of `out`
//   multiply_rows   multiplies rows that put_row wrote by a packed panel and adds the result to
//                   `out`; writes only the given rows
//   split           splits a vector of numbers into Parts, the arguments of put_pair and put_row
//   put_pair        writes a pair of rows of a packed right operand
//   clear_pairs     sets pairs of a packed right operand to zeros
//   put_row         writes 32 keys of a row for multiply_rows
//   row_offset      words from a row's first key to another key, a multiple of 32
//   kInterleaves    multiply takes a function that it calls during the product, to do other work

/// Returns 2^t within 2 ulp, for t at most 127; NaN stays NaN and 2^0 is 1. Returns 0 below -125.5:
/// results that underflow would take some hundred cycles on Intel's processors. The polynomial has
/// the least relative error on [-1/2, 1/2], 9.2e-8, of all that are 1 at 0.
STOW_BF16 inline __m512 exp2_of(__m512 t) {
  const __m512 least = _mm512_set1_ps(-125.5f);
  const __mmask16 some = _mm512_cmp_ps_mask(t, least, _CMP_NLT_UQ);
  t = _mm512_max_ps(least, t);  // max of a NaN and a number is its second argument
  const __m512 n = _mm512_roundscale_ps(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 r = _mm512_sub_ps(t, n);
  __m512 p = _mm512_set1_ps(0.00132647331f);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.00967151299f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.0555073358f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.240222424f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.693147004f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
  return _mm512_maskz_scalef_ps(some, p, n);
}

/// Interleaves the first 16 and the last 16 elements of a vector: word i of the result has element
/// i in its low half and element 16 + i in its high half.
STOW_BF16 inline __m512i woven(__m512i halves) {
  const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  const __m512i high = _mm512_slli_epi32(_mm512_add_epi32(lane, _mm512_set1_epi32(16)), 16);
  return _mm512_permutexvar_epi16(_mm512_or_si512(lane, high), halves);
}

/// Returns words with `first`, rounded to bf16, in the high half and `second` in the low half.
/// Subnormal numbers become zeros, as they do in the products.
STOW_BF16 inline __m512i pair_of(__m512 first, __m512 second) {
  return woven((__m512i)_mm512_cvtne2ps_pbh(first, second));
}

/// The members of a Kernel for bf16, whose numbers need not be split.
struct PairWords {
  using Element = Bf16;
  static constexpr bool kInterleaves = false;
  using Parts = __m512;
  static STOW_BF16 __m512 split(__m512 x) { return x; }
  static STOW_BF16 void put_pair(uint32_t* panel, int64_t pair, int half, const __m512& first,
                                 const __m512& second) {
    _mm512_store_si512(panel + pair * kTileCols + half * kLanes, pair_of(first, second));
  }
  static void clear_pairs(uint32_t* panel, int64_t first, int64_t last) {
    std::fill_n(panel + first * kTileCols, (last - first) * kTileCols, 0u);
  }
  /// Writes keys [key, key + 32) of row `row`. The earlier key of a pair is the high half, too.
  static STOW_BF16 void put_row(uint32_t* rows, int64_t row, int64_t key, const __m512& first,
                                const __m512& last) {
    _mm512_storeu_si512(rows + row * kKeyPairs + key / 2,
                        _mm512_rol_epi32((__m512i)_mm512_cvtne2ps_pbh(last, first), 16));
  }
  /// Words from a row's first key to another, a multiple of 32.
  static constexpr int64_t row_offset(int64_t key) { return key / 2; }
};
/// Adds pack_left() and pack_right() by a class `Packing` such as PairPacking.
template <class Packing>
struct PackedPairs : PairWords {
  static void pack_left(const Bf16* src, const int64_t* rows, int64_t n, const int64_t* ks,
                        int64_t kc, int8_t*, uint32_t* dst) {
    Packing::pack_left(reinterpret_cast<const uint16_t*>(src), rows, n, ks, kc, dst);
  }
  static void pack_right(const Bf16* src, const int64_t* rows, int64_t n, const int64_t* ks,
                         int64_t kc, int8_t*, uint32_t* dst) {
    Packing::pack_right(reinterpret_cast<const uint16_t*>(src), rows, n, ks, kc, dst);
  }
};

// Vectors of f32 whose numbers fill one vector of `Out`.
template <typename Out>
inline constexpr int64_t kInVector = std::is_same_v<Out, Bf16> ? 2 : 1;
// Returns the numbers as a vector of `Out`, rounded. write() writes the first n elements of one.
template <typename Out>
STOW_BF16 inline __m512i stored(const __m512 (&x)[kInVector<Out>]) {
  if constexpr (std::is_same_v<Out, Bf16>)
    return rounded(x[0], x[1]);
  else
    return _mm512_castps_si512(x[0]);
}
STOW_BF16 inline void write(float* to, int64_t n, __m512i v) {
  _mm512_mask_storeu_epi32(to, first16(n), v);
}
STOW_BF16 inline void write(Bf16* to, int64_t n, __m512i v) {
  _mm512_mask_storeu_epi16(to, first32(n), v);
}

/// to[offsets[c] + d * d_stride] = panel[d][c] * factors[c], rounded, for c < w, d < dims.
template <typename Out>
STOW_BF16 void store_columns(const float* panel, const float* factors, int64_t w, int64_t dims,
                             Out* to, const int64_t* offsets, int64_t d_stride) {
  if (d_stride != 1) {
    for (int64_t c = 0; c < w; ++c)
      for (int64_t d = 0; d < dims; ++d)
        narrow(panel[d * kTileCols + c] * factors[c], to[offsets[c] + d * d_stride]);
    return;
  }
  constexpr int64_t kIn = kInVector<Out>;
  for (int64_t c = 0; c < w; c += kLanes) {
    const __m512 f = _mm512_load_ps(factors + c);
    for (int64_t d = 0; d < dims; d += kIn * kLanes) {
      __m512i v[kLanes];
      for (int64_t i = 0; i < kLanes; ++i) {
        __m512 x[kIn];
        for (int64_t j = 0; j < kIn; ++j) {
          const int64_t at = d + kIn * i + j;
          x[j] = at < dims ? _mm512_mul_ps(_mm512_load_ps(panel + at * kTileCols + c), f)
                           : _mm512_setzero_ps();
        }
        v[i] = stored<Out>(x);
        if constexpr (kIn > 1) v[i] = woven(v[i]);
      }
      transpose_16x16(v);
      for (int64_t i = 0; i < std::min(kLanes, w - c); ++i)
        write(to + offsets[c + i] + d, dims - d, v[i]);
    }
  }
}

/// to[d * d_stride] = row[d] * factor, rounded; the row is readable to a multiple of 32.
template <typename Out>
STOW_BF16 void store_row(const float* row, float factor, int64_t dims, Out* to, int64_t d_stride) {
  constexpr int64_t kIn = kInVector<Out>;
  const __m512 f = _mm512_set1_ps(factor);
  for (int64_t d = 0; d < dims && d_stride == 1; d += kIn * kLanes) {
    __m512 x[kIn];
    for (int64_t j = 0; j < kIn; ++j) x[j] = _mm512_mul_ps(_mm512_load_ps(row + d + j * kLanes), f);
    write(to + d, dims - d, stored<Out>(x));
  }
  for (int64_t d = 0; d < dims && d_stride != 1; ++d) narrow(row[d] * factor, to[d * d_stride]);
}

}  // namespace stow::cpu::pairs
