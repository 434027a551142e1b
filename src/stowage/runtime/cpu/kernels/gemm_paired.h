// One thread's share of a product of two operands packed as pairs of bf16: the loops around a
// kernel that multiplies panels of pairs.
// Not for other machines; see pairs.h.
#pragma once

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "stowage/base/inside.h"
#include "stowage/core/half.h"
#include "stowage/runtime/cpu/kernels/gemm_plan.h"
#include "stowage/runtime/cpu/kernels/gemm_prefetch.h"
#include "stowage/runtime/cpu/kernels/pairs.h"

namespace stow::cpu::pairs {

inline constexpr int64_t kCols = kGemmColUnit;  // columns of a kernel's piece of C

/// Arguments of a kernel that multiplies a panel of A by a panel of B into a piece of C.
struct PieceArgs {
  int64_t pairs;          // depth, in pairs of k
  const uint32_t *a, *b;  // panels; `a` may be rows of A in place
  ptrdiff_t a_stride;     // of rows in place: words from one row to the next; 0: a panel
  void* out;
  ptrdiff_t out_stride;
  const float* prev;  // addend: the sums of earlier k, or C; may be out, or null
  ptrdiff_t prev_stride;
  int64_t cols;
  GemmFetch fetch;
  const void* prefetch_at;  // prev, or out if prev is in cache or null: prefetched at the beginning
  ptrdiff_t prefetch_stride;  // in bytes
  // True: prev is C, added to the finished product; false: earlier sums, to be continued.
  bool adds_to_c;
  bool whole;  // all kRows x kCols elements of prev are readable, even if fewer are used
  const int8_t *a_marks, *b_marks;  // marks of the panels' rows, if their packing makes marks
  bool swapped;                     // A and B are exchanged
};
inline constexpr int64_t kFetchEvery = 4;  // pairs for each line that is prefetched

// As put_piece() if rows of C are adjacent and columns are not: writes a column at a time.
template <typename C>
STOW_BF16 void put_transposed(const float* piece, C* c, int64_t rows, const int64_t* col_offsets,
                              int64_t cols, bool add) {
  const __mmask16 masks[2] = {first16(rows), first16(rows - kLanes)};
  for (int64_t j = 0; j < cols; j += kLanes) {
    __m512i v[2][kLanes];
    for (int64_t h = 0; h < 2; ++h) {
      for (int64_t r = 0; r < kLanes; ++r)  // a piece may end with its rows
        v[h][r] = h * kLanes + r < rows ? _mm512_load_si512(piece + (h * kLanes + r) * kCols + j)
                                        : _mm512_setzero_si512();
      transpose_16x16(v[h]);
    }
    for (int64_t i = 0; i < std::min(kLanes, cols - j); ++i) {
      C* const to = c + col_offsets[j + i];
      __m512 x[2] = {_mm512_castsi512_ps(v[0][i]), _mm512_castsi512_ps(v[1][i])};
      if constexpr (std::is_same_v<C, Bf16>) {
        const auto widened = [&](__m512i y, int h) STOW_BF16 {
          const __m256i half = h == 0 ? _mm512_castsi512_si256(y) : _mm512_extracti64x4_epi64(y, 1);
          return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
        };
        __m512i y = rounded(x[0], x[1]);
        if (add) {
          const __m512i before = _mm512_maskz_loadu_epi16(first32(rows), to);
          y = rounded(_mm512_add_ps(widened(before, 0), widened(y, 0)),
                      _mm512_add_ps(widened(before, 1), widened(y, 1)));
        }
        _mm512_mask_storeu_epi16(to, first32(rows), y);
      } else {
        for (int h = 0; h < 2; ++h) {
          if (add) x[h] = _mm512_add_ps(_mm512_maskz_loadu_ps(masks[h], to + h * kLanes), x[h]);
          _mm512_mask_storeu_ps(to + h * kLanes, masks[h], x[h]);
        }
      }
    }
  }
}

// Writes a finished piece [rows, kCols], rounded, into C; if `add`, adds the rounded piece to C.
// `c` is the base of the offsets.
template <typename C>
STOW_BF16 void put_piece(const float* piece, C* c, const int64_t* row_offsets, int64_t rows,
                   const int64_t* col_offsets, int64_t cols, bool add) {
  const bool run = is_run(col_offsets, cols);
  if constexpr (!std::is_same_v<C, F16>)
    if (!run && rows > 1 && is_run(row_offsets, rows))
      return put_transposed(piece, c + row_offsets[0], rows, col_offsets, cols, add);
  for (int64_t r = 0; r < rows; ++r, piece += kCols) {
    C* const to = c + row_offsets[r];
    const auto put_one = [&](float x, C& element) {
      C value;
      narrow(x, value);
      if (add) narrow(widen(element) + widen(value), value);
      element = value;
    };
    if (run)
      for (int64_t j = 0; j < cols; ++j) put_one(piece[j], to[col_offsets[0] + j]);
    else
      for (int64_t j = 0; j < cols; ++j) put_one(piece[j], to[col_offsets[j]]);
  }
}

// Writes a finished row of kCols sums to `to` as f32, or rounded to bf16; adds prev first if it is
// not null.
template <typename Out>
STOW_BF16 inline void write_row(const float* row, const float* prev, Out* to, int64_t cols) {
  const __mmask16 masks[2] = {first16(cols), first16(cols - kLanes)};
  __m512 x[2] = {_mm512_load_ps(row), _mm512_load_ps(row + kLanes)};
  if (prev)
    for (int h = 0; h < 2; ++h)
      x[h] = _mm512_add_ps(_mm512_maskz_loadu_ps(masks[h], prev + h * kLanes), x[h]);
  if constexpr (std::is_same_v<Out, Bf16>) {
    _mm512_mask_storeu_epi16(to, first32(cols), rounded(x[0], x[1]));
  } else {
    _mm512_mask_storeu_ps(to, masks[0], x[0]);
    _mm512_mask_storeu_ps(to + kLanes, masks[1], x[1]);
  }
}

/// Computes a tile of C at a time. Up to the plan's depth of k is packed at a time, as K blocks one
/// after another. A panel of B then goes through its K blocks while the sums of a block of rows
/// stay in cache, so that C is written once.
///
/// `Kernel` has these members:
///   kRows          rows of its pieces; pieces have kCols columns
///   kPairUnit      the pairs of a K block are a multiple of it
///   Element        type of the operands' elements
///   kParts         number of bf16 as which each element is packed
///   kFetches       lines prefetched for each kFetchEvery pairs
///   pack_left, pack_right   as in PairPacking
///   multiply<Out>(rows, PieceArgs&)   multiplies panels into f32, or rounded into bf16; it may
///                  advance args.fetch
///   kMarks         packing also writes a mark of each row (triples.h), and a depth is one K block
///   kReadsRows     multiply() also takes rows of A in place
///   kInterleaves   packs panels of B during its products, and writes pieces of C later, at flush()
///                  at the latest
template <typename Kernel>
class PairedThread {
  static constexpr int64_t kRows = Kernel::kRows, kParts = Kernel::kParts;
  using Element = typename Kernel::Element;

 public:
  PairedThread(const GemmPlan& plan, const void* a, const void* b, void* c, void* workspace)
      : p_(plan),
        a_(static_cast<const Element*>(a)),
        b_(static_cast<const Element*>(b)),
        c_(c),
        b_pack_(static_cast<uint32_t*>(workspace)),
        a_pack_(b_pack_ + plan.b_pack_bytes / 4),
        sums_(reinterpret_cast<float*>(a_pack_ + plan.a_pack_bytes / 4)),
        kept_(sums_ + plan.sums_bytes / 4),
        few_rows_(plan.depth <= kGemmBlockK && plan.task_m <= plan.row_unit()),
        large_(plan.k.extent * std::max(plan.m.extent, plan.n.extent) >= kLarge),
        a_piece_(plan.a_prologue, false),
        b_piece_(plan.b_prologue, true) {}

  void run(int64_t first_task, int64_t last_task) {
    for_each_gemm_tile(p_, first_task, last_task,
                       [&](int64_t batch, int64_t m0, int64_t m1, int64_t n0, int64_t n1) {
                         gemm_offsets(p_.batch, &GemmDim::a_stride, batch, 1, &a_batch_);
                         gemm_offsets(p_.batch, &GemmDim::b_stride, batch, 1, &b_batch_);
                         gemm_offsets(p_.batch, &GemmDim::c_stride, batch, 1, &c_batch_);
                         tile(m0, m1, n0, n1);
                       });
  }

 private:
  void tile(int64_t m0, int64_t m1, int64_t n0, int64_t n1) {
    const int64_t cols = n1 - n0;
    gemm_offsets(p_.n, &GemmDim::b_stride, n0, cols, b_cols_);
    gemm_offsets(p_.n, &GemmDim::c_stride, n0, cols, c_cols_);
    for (int64_t j = 0; j < cols; j += kCols)
      c_cols_run_[j / kCols] = is_run(c_cols_ + j, std::min(kCols, cols - j));
    for (k0_ = 0; k0_ < p_.k.extent; k0_ += p_.depth) {
      depth_ = std::min(p_.depth, p_.k.extent - k0_);
      last_k_ = k0_ + depth_ == p_.k.extent;
      gemm_offsets(p_.k, &GemmDim::a_stride, k0_, depth_, a_ks_);
      gemm_offsets(p_.k, &GemmDim::b_stride, k0_, depth_, b_ks_);
      const bool may_read = may_read_a(cols);
      for (int64_t m = m0; m < m1; m += p_.block_m) {
        const int64_t rows = std::min(p_.block_m, m1 - m);
        gemm_offsets(p_.m, &GemmDim::a_stride, m, rows, a_rows_);
        gemm_offsets(p_.m, &GemmDim::c_stride, m, rows, c_rows_);
        for (int64_t i = 0; i < rows; i += kRows)
          c_rows_even_[i / kRows] = evenly_spaced(c_rows_ + i, std::min(kRows, rows - i));
        reads_a_ = may_read && are_read(rows);
        uint32_t* to = a_pack_;
        for (int64_t k = 0; k < depth_ && !reads_a_; k += kGemmBlockK) {
          const int64_t kc = std::min(kGemmBlockK, depth_ - k);
          if (p_.a_prologue.exists)
            pack_left(words_of(p_.a_prologue, m, rows, k0_ + k, kc), a_piece_.outer, rows,
                      a_piece_.ks, kc, to);
          else
            pack_left(a_ + a_batch_, a_rows_, rows, a_ks_ + k, kc, to);
          to += pairs_in(kc) * round_up(rows) * kParts;
        }
        // The next block of A: the next rows at these k, or the first rows at the next k.
        const bool wraps = m + p_.block_m >= m1;
        const int64_t next_m = wraps ? m0 : m + p_.block_m, next_k = wraps ? k0_ + p_.depth : k0_;
        const int64_t next_rows = std::min(p_.block_m, m1 - next_m);
        if (p_.a_prologue.exists)
          ahead(a_prefetcher_, p_.a_prologue, next_m, next_rows, next_k);
        else
          ahead(a_prefetcher_, a_ + a_batch_, &GemmDim::a_stride, p_.m, next_m, next_rows, next_k);
        block(m, n0, rows, cols, m == m0, sums_ + (m - m0) * p_.tile_n);
      }
    }
  }

  // may_read_a() is true if rows of A may be read in place for the k that are packed: their k are
  // adjacent, and there are too few columns to repay packing. are_read() is true if the current
  // `rows` rows can be: they are whole panels and evenly spaced.
  bool may_read_a(int64_t cols) const {
    return Kernel::kReadsRows && !p_.a_prologue.exists && cols <= kFewCols &&
           depth_ % (2 * Kernel::kPairUnit) == 0 && is_run(a_ks_, depth_);
  }
  bool are_read(int64_t rows) const {
    const int64_t stride = rows > 1 ? a_rows_[1] - a_rows_[0] : 0;
    return rows % kRows == 0 && stride > 0 && stride % 2 == 0 && evenly_spaced(a_rows_, rows);
  }

  // Pairs of a K block of k elements, padded to kPairUnit.
  static int64_t pairs_in(int64_t k) {
    constexpr int64_t kUnit = 2 * Kernel::kPairUnit;
    return (k + kUnit - 1) / kUnit * Kernel::kPairUnit;
  }
  // Lines that a product of the K block at k prefetches.
  int64_t lines_at(int64_t k) const {
    return pairs_in(std::min(kGemmBlockK, depth_ - k)) / kFetchEvery * Kernel::kFetches;
  }
  static int64_t round_up(int64_t rows) { return (rows + kRows - 1) / kRows * kRows; }

  void pack_left(const Element* src, const int64_t* rows, int64_t n, const int64_t* ks, int64_t kc,
                 uint32_t* to) {
    if constexpr (Kernel::kMarks)
      kernel_.pack_left(src, rows, n, ks, kc, a_marks_, to);
    else
      kernel_.pack_left(src, rows, n, ks, kc, to);
  }
  // Packs n columns of B from column j of the tile on.
  void pack_right(const Element* src, int64_t j, const int64_t* cols, int64_t n, const int64_t* ks,
                  int64_t kc, uint32_t* to) {
    if constexpr (Kernel::kMarks)
      kernel_.pack_right(src, cols, n, ks, kc, b_marks_ + j, to);
    else
      kernel_.pack_right(src, cols, n, ks, kc, to);
  }

  void ahead(GemmPrefetcher& of, const Element* base, int64_t GemmDim::*stride,
             const GemmDims& outer, int64_t first, int64_t n, int64_t k) {
    of.stop();
    if (large_ && k < p_.k.extent)
      of.start(base, sizeof(Element), stride, outer, first, n, p_.k, k,
               std::min(p_.depth, p_.k.extent - k));
  }

  void ahead(GemmPrefetcher& of, const GemmPlan::Prologue& prologue, int64_t first, int64_t n,
             int64_t k) {
    of.stop();
    if (large_ && k < p_.k.extent)
      of.start(prologue, first, n, k, std::min(p_.depth, p_.k.extent - k));
  }

  // Runs the prologue of an operand for a piece, as run_prologue().
  const Element* words_of(const GemmPlan::Prologue& of, int64_t first, int64_t n, int64_t k,
                          int64_t kc) {
    return static_cast<const Element*>(run_prologue(of, first, n, k, kc, b_pack_));
  }

  // Multiplies a block of A by a tile of B. The first block packs each panel of B right before its
  // use.
  void block(int64_t m, int64_t n0, int64_t rows, int64_t cols, bool first, float* sums) {
    int64_t finished = 0;  // columns for which the epilogue has run
    const int64_t b_panel = pairs_in(depth_) * kCols * kParts;
    b_prefetcher_.stop();
    for (int64_t j = 0; j < cols; j += kCols) {
      const int64_t w = std::min(kCols, cols - j);
      uint32_t* const b = b_pack_ + j / kCols * b_panel;
      if (first && p_.b_prologue.exists) {
        for (int64_t k = 0; k < depth_; k += kGemmBlockK) {
          const int64_t kc = std::min(kGemmBlockK, depth_ - k);
          pack_right(words_of(p_.b_prologue, n0 + j, w, k0_ + k, kc), j, b_piece_.outer, w,
                     b_piece_.ks, kc, b + k / 2 * kCols * kParts);
        }
        ahead(b_prefetcher_, p_.b_prologue, n0 + j + kCols, std::min(kCols, cols - j - kCols), k0_);
      } else if (first && few_rows_) {  // products are too short to prefetch in: packs all panels
        if (j == 0) pack_right(b_ + b_batch_, 0, b_cols_, cols, b_ks_, depth_, b_pack_);
      } else if (first) {
        int64_t next = j + kCols;  // to fetch
        if constexpr (Kernel::kInterleaves) {
          if (j == 0) kernel_.start_right(b_ + b_batch_, b_cols_, w, b_ks_, depth_, b_marks_, b);
          kernel_.finish_right();
          if (next < cols)
            kernel_.start_right(b_ + b_batch_, b_cols_ + next, std::min(kCols, cols - next), b_ks_,
                                depth_, b_marks_ + next, b + b_panel);
          next += kCols;
        } else {
          for (int64_t k = 0; k < depth_; k += kGemmBlockK)
            pack_right(b_ + b_batch_, j, b_cols_ + j, w, b_ks_ + k,
                       std::min(kGemmBlockK, depth_ - k), b + k / 2 * kCols * kParts);
        }
        ahead(b_prefetcher_, b_ + b_batch_, &GemmDim::b_stride, p_.n, n0 + next,
              std::min(kCols, cols - next), k0_);
      }
      int64_t left = (depth_ + kGemmBlockK - 1) / kGemmBlockK * (round_up(rows) / kRows);
      for (int64_t k = 0; k < depth_; k += kGemmBlockK)
        for (int64_t i = 0; i < rows; i += kRows) {
          piece(k, a_pack_ + k / 2 * round_up(rows) * kParts, b + k / 2 * kCols * kParts, i,
                std::min(kRows, rows - i), j, w, sums);
          --left;
          if (first && p_.b_prologue.exists) b_prefetcher_.fetch_rest(lines_at(k), left);
        }
      if (!p_.epilogue || !last_k_ || !is_epilogue_due(p_, finished, j + w, cols)) continue;
      flush();
      run_epilogue(p_, m, m + rows, n0 + finished, n0 + j + w, b_pack_);
      finished = j + w;
    }
    flush();
  }
  void flush() {
    if constexpr (Kernel::kInterleaves) kernel_.flush();
  }

  // Multiplies a panel of A (rows [i, i + h) of the block) by a panel of B (columns [j, j + w) of
  // the tile) for the packed K block at k. The sums go to a buffer or, with the last k, to C.
  void piece(int64_t k, const uint32_t* a, const uint32_t* b, int64_t i, int64_t h, int64_t j,
             int64_t w, float* sums) {
    const int64_t pairs = pairs_in(std::min(kGemmBlockK, depth_ - k));
    a += i * pairs * kParts;
    if (reads_a_) a = reinterpret_cast<const uint32_t*>(a_ + a_batch_ + a_rows_[i] + a_ks_[k]);
    const bool even = c_cols_run_[j / kCols] && c_rows_even_[i / kRows];
    const int64_t at = c_batch_ + c_rows_[i] + c_cols_[j];
    const ptrdiff_t stride = h > 1 ? c_rows_[i + 1] - c_rows_[i] : 0;
    const bool begins = k == 0, ends = k + kGemmBlockK >= depth_;
    // True if C itself holds the sums, or is the addend of their only part.
    const bool in_c = p_.c == DType::kF32 && even &&
                      (!p_.accumulate || (begins && ends && !p_.partial_sums));
    float* const c_sums = in_c ? static_cast<float*>(c_) + at : nullptr;
    float* const kept = Kernel::kInterleaves ? taken_ : kept_ + i * kCols;
    float* const part = sums + i * p_.tile_n + j;
    GemmPrefetcher& next = b_prefetcher_.done() ? a_prefetcher_ : b_prefetcher_;
    PieceArgs args;
    next.next(lines_at(k), a, args.fetch);
    args.pairs = pairs, args.a = a, args.b = b, args.cols = w;
    args.a_stride = reads_a_ ? (a_rows_[1] - a_rows_[0]) / 2 : 0;
    args.out = kept, args.out_stride = kCols;
    args.prev = kept, args.prev_stride = kCols;
    args.prefetch_at = kept, args.prefetch_stride = 4 * kCols;
    args.adds_to_c = false, args.whole = true;
    args.swapped = p_.swapped;
    if constexpr (Kernel::kMarks) args.a_marks = a_marks_ + i, args.b_marks = b_marks_ + j;
    if (begins && k0_ == 0)
      args.prev = p_.accumulate ? c_sums : nullptr, args.prev_stride = stride,
      args.adds_to_c = true, args.whole = false;
    else if (begins && p_.partial_sums)
      args.prev = part, args.prev_stride = p_.tile_n;
    else if (begins && even)
      args.prev = c_sums, args.prev_stride = stride, args.whole = false;
    else if (begins)
      take(static_cast<const float*>(c_) + c_batch_, i, h, j, w, kept);
    const bool reads_far = args.prev != nullptr && args.prev != kept;
    if (reads_far) args.prefetch_at = args.prev, args.prefetch_stride = 4 * args.prev_stride;
    const auto multiply_into = [&](auto* out, ptrdiff_t out_stride) {
      using Out = std::remove_pointer_t<decltype(out)>;
      args.out = out, args.out_stride = out_stride;
      if (!reads_far)
        args.prefetch_at = out, args.prefetch_stride = ptrdiff_t{sizeof(Out)} * out_stride;
      kernel_.template multiply<Out>(h, args);
    };
    if (!ends) return kernel_.template multiply<float>(h, args);
    if (p_.partial_sums && !last_k_) return multiply_into(part, p_.tile_n);
    if (c_sums) return multiply_into(c_sums, stride);
    if (p_.c == DType::kBF16 && !p_.accumulate && even)
      return multiply_into(static_cast<Bf16*>(c_) + at, stride);
    alignas(64) float out[kRows * kCols];
    args.out = out, args.out_stride = kCols;
    kernel_.template multiply<float>(h, args);
    flush();
    const bool add = p_.accumulate;
    if (p_.c == DType::kF32)
      put_piece(out, static_cast<float*>(c_) + c_batch_, c_rows_ + i, h, c_cols_ + j, w, add);
    else if (p_.c == DType::kBF16)
      put_piece(out, static_cast<Bf16*>(c_) + c_batch_, c_rows_ + i, h, c_cols_ + j, w, add);
    else
      put_piece(out, static_cast<F16*>(c_) + c_batch_, c_rows_ + i, h, c_cols_ + j, w, add);
  }

  // Copies h rows and w columns of C, at any strides, to `to`.
  void take(const float* c, int64_t i, int64_t h, int64_t j, int64_t w, float* to) const {
    for (int64_t r = 0; r < h; ++r)
      for (int64_t x = 0; x < w; ++x) to[r * kCols + x] = c[c_rows_[i + r] + c_cols_[j + x]];
  }

  static bool evenly_spaced(const int64_t* offsets, int64_t n) {
    for (int64_t i = 2; i < n; ++i)
      if (offsets[i] - offsets[i - 1] != offsets[1] - offsets[0]) return false;
    return true;
  }

  static constexpr int64_t kFewCols = 768;    // most columns for which A is read in place
  static constexpr int64_t kLarge = 1 << 18;  // least elements of an operand to prefetch it

  const GemmPlan& p_;
  Kernel kernel_;
  const Element *a_, *b_;
  void* c_;
  uint32_t *b_pack_, *a_pack_;
  float *sums_, *kept_;
  bool few_rows_, large_, last_k_ = false, reads_a_ = false;
  GemmPrefetcher a_prefetcher_, b_prefetcher_;
  PieceOffsets a_piece_, b_piece_;
  int64_t k0_ = 0, depth_ = 0;  // the k that are packed: [k0_, k0_ + depth_)
  int64_t a_batch_ = 0, b_batch_ = 0, c_batch_ = 0;
  int64_t a_ks_[kGemmPairedWhole], b_ks_[kGemmPairedWhole];
  int64_t a_rows_[kGemmMaxBlockM], c_rows_[kGemmMaxBlockM];
  int64_t b_cols_[kGemmMaxTileN], c_cols_[kGemmMaxTileN];
  int8_t a_marks_[Kernel::kMarks ? kGemmMaxBlockM : 1],
      b_marks_[Kernel::kMarks ? kGemmMaxTileN : 1];
  // Used instead of kept_ if kInterleaves.
  alignas(64) float taken_[Kernel::kInterleaves ? kRows * kCols : 1];
  bool c_rows_even_[kGemmMaxBlockM / kRows], c_cols_run_[kGemmMaxTileN / kCols];
};

}  // namespace stow::cpu::pairs
