// Each f32 as three bf16, for the instructions that multiply tiles of bf16 (AMX): splits and packs
// operands, and multiplies panels of them.
// Not for other machines: include it only where __x86_64__ and __GNUC__ are defined, and call it
// only if can_multiply_tiles() (gemm_thread.h).
//
// x = x0 + x1 + x2, where each part is the bf16 nearest to the rest of x (ties away from zero). The
// sum is exact: three parts of 8 bits hold the 24 bits of an f32. A product of two numbers is nine
// products of parts. Six are computed; the other three are below 2^-25 of the whole, less than the
// rounding error of a product of f32.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>

#include "stowage/base/inside.h"
#include "stowage/core/sums.h"
#include "stowage/runtime/cpu/kernels/amx.h"

namespace stow::cpu::triples {

using amx::kSide;
using amx::kTile;
using pairs::first16;

inline constexpr int64_t kParts = 3;                            // bf16 of each number
inline constexpr int64_t kTileWords = kTile * kTile;            // pairs of a tile
inline constexpr int64_t kStepWords = 2 * kParts * kTileWords;  // words to a panel's next 16 pairs

// A panel is [step of 16 pairs][part][first and last 16 rows][tile]. A tile is [16 rows][16 pairs]
// for the left operand and [16 pairs][16 columns] for the right one. The earlier k of a pair is the
// low half of its word.

/// Scaling of a row of a panel (of the right operand: a column) before it is split. The row is
/// multiplied by 2^mark if all of it is so small that parts and products would be lost as subnormal
/// numbers. The mark is kExact if the row has an infinity, which has no parts, or numbers so large
/// that products of parts might overflow where products of the numbers do not. undo_marks() then
/// adds up the parts of the row again and multiplies its elements one by one.
using Mark = int8_t;
inline constexpr Mark kExact = -128;

// Exponents: rows whose largest magnitude is below 2^kSmall are scaled to 2^kSmallBecomes; rows
// whose largest magnitude is at least 2^kLarge are kExact.
inline constexpr int kSmall = -40, kSmallBecomes = -17, kLarge = 63;

/// Returns the mark of a row whose largest magnitude has these bits as an f32; 0 for a NaN.
inline Mark mark_of(uint32_t largest) {
  constexpr uint32_t kInfinity = 0x7f800000;
  if (largest > kInfinity) return 0;
  const int exponent = static_cast<int>(largest >> 23) - 127;
  if (exponent >= kLarge) return kExact;
  return largest == 0 || exponent >= kSmall ? 0 : static_cast<Mark>(kSmallBecomes - exponent);
}
// True if any of 16 rows, given the bits of its largest magnitude, has a mark or a NaN.
STOW_BF16 inline bool has_marks(__m512i largest) {
  constexpr int kLeast = (kSmall + 127) << 23, kMost = (kLarge + 127) << 23;  // as bits
  // A row of zeros has no mark: the bits of 0 less 1 wrap to the largest number.
  return (_mm512_cmplt_epu32_mask(_mm512_sub_epi32(largest, _mm512_set1_epi32(1)),
                                  _mm512_set1_epi32(kLeast - 1)) |
          _mm512_cmpge_epu32_mask(largest, _mm512_set1_epi32(kMost))) != 0;
}
/// Returns the factor by which a row with this mark was multiplied, or its inverse for `undo`.
inline float factor_of(Mark mark, bool undo = false) {
  return mark == kExact ? 1.0f : std::ldexp(1.0f, undo ? -mark : mark);
}

// Splitting of rows with marks: their factor, and the addend that makes the truncation to a part
// round to nearest. The addend is 0 in rows marked kExact, where rounding up might give an
// infinity.
struct MarkScaling {
  __m512 factor;
  __m512i half;
};

// Splits 16 numbers into parts[0..3), each in the high half of a word. `scaling` is applied if
// kMarked: some of the rows have marks.
template <bool kMarked>
STOW_BF16 inline void split(__m512 x, const MarkScaling& scaling, __m512i* parts) {
  const __m512i half = kMarked ? scaling.half : _mm512_set1_epi32(0x8000),
                high = _mm512_set1_epi32(static_cast<int>(0xffff0000));
  if constexpr (kMarked) x = _mm512_mul_ps(x, scaling.factor);
  parts[0] = _mm512_and_si512(_mm512_add_epi32(_mm512_castps_si512(x), half), high);
  __m512 rest;
  if constexpr (kMarked)
    rest = _mm512_maskz_sub_ps(static_cast<__mmask16>(~_mm512_fpclass_ps_mask(x, 0x18)),
                               x,  // not of infinities
                               _mm512_castsi512_ps(parts[0]));
  else
    rest = _mm512_sub_ps(x, _mm512_castsi512_ps(parts[0]));
  parts[1] = _mm512_and_si512(_mm512_add_epi32(_mm512_castps_si512(rest), half), high);
  parts[2] = _mm512_castps_si512(_mm512_sub_ps(rest, _mm512_castsi512_ps(parts[1])));
}

// Returns words whose low half is the high half of `first` and whose high half is that of `second`.
STOW_BF16 inline __m512i pair_of(__m512i first, __m512i second) {
  return _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(first, 16), second);
}

// Returns the high half of each of 32 adjacent words.
STOW_BF16 inline __m512i adjacent_pairs(__m512i first, __m512i last) {
  const __m512i lane =
      _mm512_set_epi32(60, 56, 52, 48, 44, 40, 36, 32, 28, 24, 20, 16, 12, 8, 4, 0);
  const __m512i highs = _mm512_add_epi32(_mm512_set1_epi32(3 << 16 | 1),
                                         _mm512_or_si512(lane, _mm512_slli_epi32(lane, 16)));
  return _mm512_permutex2var_epi16(first, highs, last);
}

// Returns the larger magnitude, lane by lane; NaN only if both are NaN.
STOW_BF16 inline __m512 larger(__m512 x, __m512 y) {
  constexpr int kPositiveLargerMagnitude = 0b1011;
  return _mm512_range_ps(x, y, kPositiveLargerMagnitude);
}

inline constexpr int64_t kVectors = 4;  // vectors of each tile that one step packs

// Packs 16 rows (zeros beyond n) of kc <= 32 k from ks[0] on into one tile for each part, 2 *
// kTileWords apart. The k (kAlongK) or the rows are adjacent in memory. Each call does one part of
// the work: `part` 0 and 1 transpose half of the k each into `transposed`, if the layout requires
// it; each later one packs kVectors vectors of each tile. If vectors hold rows (kRowsOfPairs),
// scaling[r] and largest[r] belong to row r; else scaling[0] and largest[0] have a lane for each
// row.
template <bool kAlongK, bool kRowsOfPairs, bool kMarked>
STOW_BF16 inline void pack_tiles(const float* src, const int64_t* rows, int64_t n,
                                 const int64_t* ks, int64_t kc, const MarkScaling* scaling,
                                 __m512* largest, int64_t part, __m512i (&transposed)[2][kTile],
                                 uint32_t* dst) {
  const __mmask16 k_masks[2] = {first16(kc), first16(kc - kTile)}, row_mask = first16(n);
  // Half h of the k of row r; and all rows at one k.
  const auto half_of_row = [&](int64_t r, int64_t h) STOW_BF16 {
    return r < n ? _mm512_maskz_loadu_ps(k_masks[h], src + rows[r] + ks[0] + h * kTile)
                 : _mm512_setzero_ps();
  };
  const auto all_of_k = [&](int64_t k) STOW_BF16 {
    return k < kc && n > 0 ? _mm512_maskz_loadu_ps(row_mask, src + rows[0] + ks[k])
                           : _mm512_setzero_ps();
  };
  if (part < 2) {
    __m512i v[kTile];
    for (int64_t i = 0; i < kTile; ++i)
      v[i] = _mm512_castps_si512(kAlongK ? half_of_row(i, part) : all_of_k(part * kTile + i));
    pairs::transpose_16x16(v);
    for (int64_t i = 0; i < kTile; ++i) transposed[part][i] = v[i];
    return;
  }
  __m512 of_all = _mm512_setzero_ps();
  const int64_t first = (part - 2) * kVectors;
  for (int64_t i = first; i < first + kVectors; ++i) {  // a row, or a pair of k
    __m512 x[2];
    for (int64_t h = 0; h < 2; ++h)
      if constexpr (kRowsOfPairs)
        x[h] = kAlongK ? half_of_row(i, h) : _mm512_castsi512_ps(transposed[h][i]);
      else
        x[h] = kAlongK ? _mm512_castsi512_ps(transposed[i / 8][2 * i % kTile + h])
                       : all_of_k(2 * i + h);
    if constexpr (!kMarked) {
      __m512& most = kRowsOfPairs ? largest[i] : of_all;
      most = larger(most, larger(x[0], x[1]));
    }
    __m512i parts[2][kParts];
    for (int64_t h = 0; h < 2; ++h)
      split<kMarked>(x[h], scaling[kMarked && kRowsOfPairs ? i : 0], parts[h]);
    for (int64_t p = 0; p < kParts; ++p)
      _mm512_store_si512(dst + p * 2 * kTileWords + i * kTile,
                         kRowsOfPairs ? adjacent_pairs(parts[0][p], parts[1][p])
                                      : pair_of(parts[0][p], parts[1][p]));
  }
  if constexpr (!kMarked && !kRowsOfPairs) largest[0] = larger(largest[0], of_all);
}

// As pack_tiles() for 32 adjacent columns of the right operand, but packs kVectors / 2 pairs of k
// of both tiles. The two cache lines of a k are then read together; many k that are a power of two
// apart would evict each other from the caches.
STOW_BF16 inline void pack_wide(const float* src, const int64_t* ks, int64_t kc, int64_t first_pair,
                                __m512* const (&largest)[2], uint32_t* dst) {
  __m512 most[2] = {*largest[0], *largest[1]};
  for (int64_t i = first_pair; i < first_pair + kVectors / 2; ++i)
    for (int64_t half = 0; half < 2; ++half) {
      __m512 x[2];
      __m512i parts[2][kParts];
      for (int64_t h = 0; h < 2; ++h) {
        x[h] = 2 * i + h < kc ? _mm512_loadu_ps(src + ks[2 * i + h] + half * kTile)
                              : _mm512_setzero_ps();
        most[half] = larger(most[half], x[h]);
        split<false>(x[h], MarkScaling{}, parts[h]);
      }
      for (int64_t p = 0; p < kParts; ++p)
        _mm512_store_si512(dst + (2 * p + half) * kTileWords + i * kTile,
                           pair_of(parts[0][p], parts[1][p]));
    }
  *largest[0] = most[0], *largest[1] = most[1];
}

/// Packs panels of kSide rows of kc <= 256 elements: pack() packs any number of rows at once;
/// start() and step() pack one panel, at most 32 rows, a little at each step, between the
/// instructions of a product of other panels. Row r at k is src[rows[r] + ks[k]]; rows beyond n and
/// k beyond kc are zeros. Writes 32 marks for each panel.
template <bool kRowsOfPairs>
class PanelPacker {
 public:
  STOW_BF16 void start(const float* src, const int64_t* rows, int64_t n, const int64_t* ks,
                       int64_t kc, Mark* marks, uint32_t* dst) {
    kc_ = kc;
    const bool along_k = pairs::is_run(ks, kc);
    for (int64_t h = 0; h < 2; ++h) {
      Half& half = halves_[h];
      half.src = src, half.rows = rows + h * kTile,
      half.n = std::clamp<int64_t>(n - h * kTile, 0, kTile);
      half.along_k = !pairs::is_run(half.rows, half.n);
      half.ks = ks;
      half.marks = marks + h * kTile, half.dst = dst + h * kTileWords;
      for (__m512& x : half.largest) x = _mm512_setzero_ps();
      if (half.along_k && !along_k) gather(h);
    }
    wide_ = !kRowsOfPairs && n == kSide && pairs::is_run(rows, n);
    part_ = first_part(halves_[0]);
    packed_ = 0, units_ = 2 * ((kc + kSide - 1) / kSide);
  }
  bool is_done() const { return packed_ == units_; }
  /// Does a small part of the work that start() defined.
  STOW_BF16 void step() {
    if (wide_) {
      Half& half = halves_[0];
      const int64_t k = packed_ / 2 * kSide, part = part_ - 2;
      for (int64_t i = (packed_ + 2) * kTile + part * kVectors, end = std::min(i + kVectors, kc_);
           i < end; ++i) {
        _mm_prefetch(half.src + half.rows[0] + half.ks[i], _MM_HINT_T1);
        _mm_prefetch(half.src + half.rows[0] + half.ks[i] + kTile, _MM_HINT_T1);
      }
      pack_wide(half.src + half.rows[0], half.ks + k, std::min(kSide, kc_ - k),
                packed_ % 2 * (kTile / 2) + part * (kVectors / 2),
                {half.largest, halves_[1].largest}, half.dst + packed_ / 2 * kStepWords);
    } else {
      pack_part<false>(halves_[packed_ % 2], packed_ / 2, part_, nullptr);
    }
    if (++part_ < kPartsEnd) return;
    part_ = first_part(halves_[++packed_ % 2]);
    if (packed_ == units_)
      for (Half& half : halves_) finish(half);
  }
  /// Does all steps that are left.
  STOW_BF16 void run() {
    while (!is_done()) step();
  }
  STOW_BF16 void pack(const float* src, const int64_t* rows, int64_t n, const int64_t* ks,
                      int64_t kc, Mark* marks, uint32_t* dst) {
    const int64_t words = (kc + kSide - 1) / kSide * kStepWords;
    for (int64_t r = 0; r < n; r += kSide, dst += words) {
      start(src, rows + r, std::min(kSide, n - r), ks, kc, marks + r, dst);
      run();
    }
  }

 private:
  static constexpr int64_t kMost = kProductBlock;
  struct Half {
    const float* src;
    const int64_t *rows, *ks;
    int64_t n;
    bool along_k;  // true: adjacent k; false: adjacent rows
    Mark* marks;
    uint32_t* dst;
    __m512 largest[kTile];
  };

  static constexpr int64_t kPartsEnd = 2 + kTile / kVectors;
  // Returns the first `part` of pack_tiles() that is needed: 2 if nothing has to be transposed.
  static int64_t first_part(const Half& half) { return half.along_k != kRowsOfPairs ? 0 : 2; }

  template <bool kMarked>
  STOW_BF16 void pack_part(Half& half, int64_t step, int64_t part, const MarkScaling* scaling) {
    const int64_t k = step * kSide, n = std::min(kSide, kc_ - k);
    uint32_t* const to = half.dst + step * kStepWords;
    if (half.along_k)
      pack_tiles<true, kRowsOfPairs, kMarked>(half.src, half.rows, half.n, half.ks + k, n, scaling,
                                              half.largest, part, transposed_, to);
    else
      pack_tiles<false, kRowsOfPairs, kMarked>(half.src, half.rows, half.n, half.ks + k, n, scaling,
                                               half.largest, part, transposed_, to);
  }

  // Writes the marks of 16 rows. If a row has one, packs the 16 rows again, scaled.
  STOW_BF16 void finish(Half& half) {
    __m512i of_rows[kTile];
    for (int64_t i = 0; i < (kRowsOfPairs ? kTile : 1); ++i)
      of_rows[i] = _mm512_castps_si512(half.largest[i]);
    if constexpr (kRowsOfPairs) {
      pairs::transpose_16x16(of_rows);
      for (int64_t i = 1; i < kTile; ++i) of_rows[0] = _mm512_max_epu32(of_rows[0], of_rows[i]);
    }
    std::memset(half.marks, 0, kTile);
    if (!has_marks(of_rows[0])) [[likely]]
      return;
    alignas(64) uint32_t largest[kTile];
    _mm512_store_si512(largest, of_rows[0]);
    for (int64_t r = 0; r < kTile; ++r) half.marks[r] = mark_of(largest[r]);
    constexpr int32_t kHalf = 0x8000;
    MarkScaling scaling[kTile];
    alignas(64) float factors[kTile];
    alignas(64) int32_t cuts[kTile];
    for (int64_t r = 0; r < kTile; ++r) {
      factors[r] = factor_of(half.marks[r]), cuts[r] = half.marks[r] == kExact ? 0 : kHalf;
      scaling[r] = {_mm512_set1_ps(factors[r]), _mm512_set1_epi32(cuts[r])};
    }
    if constexpr (!kRowsOfPairs) scaling[0] = {_mm512_load_ps(factors), _mm512_load_si512(cuts)};
    for (int64_t step = 0; step < units_ / 2; ++step)
      for (int64_t part = first_part(half); part < kPartsEnd; ++part)
        pack_part<true>(half, step, part, scaling);
  }

  // Copies the rows of a half, which have any strides, to a block with adjacent k.
  void gather(int64_t h) {
    Half& half = halves_[h];
    for (int64_t k = 0; k < kc_; ++k) block_ks_[k] = k;
    for (int64_t r = 0; r < half.n; ++r) {
      block_rows_[h][r] = r * kMost;
      for (int64_t k = 0; k < kc_; ++k)
        blocks_[h][r * kMost + k] = half.src[half.rows[r] + half.ks[k]];
    }
    half.src = blocks_[h], half.rows = block_rows_[h], half.ks = block_ks_;
  }

  bool wide_ = false;  // the panel is packed by pack_wide()
  // A unit is 16 of the rows by 32 k, or, if wide_, all rows by 16 k. part_ is the next part of the
  // unit that is packed.
  int64_t kc_ = 0, packed_ = 0, units_ = 0, part_ = 0;
  __m512i transposed_[2][kTile];
  Half halves_[2];
  float blocks_[2][kTile * kMost];
  int64_t block_rows_[2][kTile], block_ks_[kMost];
};

/// Packs panels of both operands. `rows` of pack_right() are columns of the right operand.
class PanelPacking {
 public:
  void pack_left(const float* src, const int64_t* rows, int64_t n, const int64_t* ks, int64_t kc,
                 Mark* marks, uint32_t* dst) {
    left_.pack(src, rows, n, ks, kc, marks, dst);
  }
  void pack_right(const float* src, const int64_t* rows, int64_t n, const int64_t* ks, int64_t kc,
                  Mark* marks, uint32_t* dst) {
    right_.pack(src, rows, n, ks, kc, marks, dst);
  }

 protected:
  PanelPacker<true> left_;
  PanelPacker<false> right_;
};

/// out[32][32] = a * b, for panels of `steps` steps. A step sums the six products of parts in the
/// order that gemm.h states; kSwapped: in that order for exchanged operands. Calls interleave() six
/// times a step, between independent products. The call costs no time if it takes at most some 64
/// instructions.
template <bool kSwapped, typename Interleave>
STOW_AMX inline void multiply(int64_t steps, const uint32_t* a, const uint32_t* b, float* out,
                              const Interleave& interleave) {
  __asm__ volatile("" ::: "memory");  // as in amx::multiply
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  const auto take_a = [&](int64_t part) STOW_AMX {
    _tile_loadd(4, a + part * 2 * kTileWords, 4 * kTile);
    _tile_loadd(5, a + (part * 2 + 1) * kTileWords, 4 * kTile);
  };
  const auto take_b = [&](int64_t part) STOW_AMX {
    _tile_loadd(6, b + part * 2 * kTileWords, 4 * kTile);
    _tile_loadd(7, b + (part * 2 + 1) * kTileWords, 4 * kTile);
  };
  const auto take_first = [&](int64_t part) STOW_AMX { kSwapped ? take_b(part) : take_a(part); };
  const auto take_second = [&](int64_t part) STOW_AMX { kSwapped ? take_a(part) : take_b(part); };
  const auto add = [&]() STOW_AMX {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    interleave();
  };
  for (int64_t i = 0; i < steps; ++i, a += kStepWords, b += kStepWords) {
    take_first(2), take_second(0), add();
    take_first(1), add();
    take_second(1), add();
    take_first(0), add();
    take_second(0), add();
    take_second(2), add();
    // Processors with AMX lose 250 ns at a store of a tile that follows 140 products or more
    // without a store.
    if (i % 4 == 3 && i + 1 < steps) _tile_stored(0, out, 4 * kSide);
  }
  _tile_stored(0, out, 4 * kSide);
  _tile_stored(1, out + kTile, 4 * kSide);
  _tile_stored(2, out + kTile * kSide, 4 * kSide);
  _tile_stored(3, out + kTile * kSide + kTile, 4 * kSide);
  __asm__ volatile("" ::: "memory");
}

inline bool any_mark(const Mark* marks) {
  uint64_t words[kSide / 8];
  std::memcpy(words, marks, kSide);
  return (words[0] | words[1] | words[2] | words[3]) != 0;
}
inline bool any_exact(const Mark* marks) {
  return std::find(marks, marks + kSide, kExact) != marks + kSide;
}

// Returns element (row, k) of a panel of the left operand, or (column, k) of the right one: the sum
// of its parts.
template <bool kRowsOfPairs>
float whole(const uint32_t* panel, int64_t row, int64_t k) {
  const int64_t pair = k / 2 % kTile, in_tile = row % kTile;
  const uint32_t* tile = panel + k / kSide * kStepWords + row / kTile * kTileWords +
                         (kRowsOfPairs ? in_tile * kTile + pair : pair * kTile + in_tile);
  float sum = 0;
  for (int64_t part = 0; part < kParts; ++part, tile += 2 * kTileWords)
    sum += std::bit_cast<float>(k % 2 == 0 ? *tile << 16 : *tile & 0xffff0000);
  return sum;
}

// Computes piece[r][c] again by fma in order of k, for the rows and columns that are marked kExact.
STOW_BF16 inline void make_exact(int64_t steps, const uint32_t* a, const uint32_t* b,
                                 const Mark* a_marks, const Mark* b_marks, float* piece) {
  constexpr int64_t kLanes = pairs::kLanes;
  alignas(64) float whole_b[kProductBlock][kSide];
  for (int64_t k = 0; k < steps * kSide; ++k)
    for (int64_t c = 0; c < kSide; ++c) whole_b[k][c] = whole<false>(b, c, k);
  const bool all = any_exact(b_marks);
  for (int64_t r = 0; r < kSide; ++r) {
    if (!all && a_marks[r] != kExact) continue;
    __m512 sums[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    for (int64_t k = 0; k < steps * kSide; ++k)
      for (int64_t h = 0; h < 2; ++h)
        sums[h] = _mm512_fmadd_ps(_mm512_set1_ps(whole<true>(a, r, k)),
                                  _mm512_load_ps(whole_b[k] + h * kLanes), sums[h]);
    alignas(64) float row[kSide];
    for (int64_t h = 0; h < 2; ++h) _mm512_store_ps(row + h * kLanes, sums[h]);
    for (int64_t c = 0; c < kSide; ++c)
      if (a_marks[r] == kExact || b_marks[c] == kExact) piece[r * kSide + c] = row[c];
  }
}

STOW_BF16 inline void undo_any_marks(int64_t steps, const uint32_t* a, const uint32_t* b,
                                     const Mark* a_marks, const Mark* b_marks, float* piece) {
  if (any_exact(a_marks) || any_exact(b_marks)) make_exact(steps, a, b, a_marks, b_marks, piece);
  float of_cols[kSide];
  for (int64_t c = 0; c < kSide; ++c) of_cols[c] = factor_of(b_marks[c], true);
  for (int64_t r = 0; r < kSide; ++r) {
    const float of_row = factor_of(a_marks[r], true);
    for (int64_t c = 0; c < kSide; ++c)
      piece[r * kSide + c] = piece[r * kSide + c] * of_row * of_cols[c];
  }
}

/// Corrects piece[32][32], which multiply() computed from these panels (at most 256 k), for the
/// marks of their rows and columns: undoes the scaling, and computes kExact products one by one.
inline void undo_marks(int64_t steps, const uint32_t* a, const uint32_t* b, const Mark* a_marks,
                       const Mark* b_marks, float* piece) {
  if (any_mark(a_marks) || any_mark(b_marks)) [[unlikely]]
    undo_any_marks(steps, a, b, a_marks, b_marks, piece);
}

}  // namespace stow::cpu::triples
