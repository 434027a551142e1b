// Products of a few rows of bf16 with a large operand of bf16, which is read once, in place, in
// long runs of memory. Computed with tiles (AMX); the bits are those of gemm_amx.cpp.
// Not for other machines: include it only where __x86_64__ and __GNUC__ are defined.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "stowage/base/bytes.h"
#include "stowage/runtime/cpu/kernels/amx.h"
#include "stowage/runtime/cpu/kernels/gemm_paired.h"

namespace stow::cpu {

/// One thread's share of such a product of x, the few rows, and w, the large operand. x is A and w
/// is B if C has few rows; if it has few columns, x is B and w is A. In this class, rows are those
/// of x and columns those of w.
class FewRowsAmx {
 public:
  FewRowsAmx(const GemmPlan& plan, const void* a, const void* b, void* c, void* workspace)
      : p_(plan),
        few_are_rows_(plan.m.extent <= plan.n.extent),
        xs_(few_are_rows_ ? plan.m : plan.n),
        ws_(few_are_rows_ ? plan.n : plan.m),
        x_(static_cast<const uint16_t*>(few_are_rows_ ? a : b)),
        w_(static_cast<const uint16_t*>(few_are_rows_ ? b : a)),
        c_(c),
        workspace_(workspace),
        a_piece_(plan.a_prologue, false) {}

  /// True if x has few enough rows, w is large, rows or columns of w are runs of memory, and the
  /// plan's workspace has the room.
  bool can_run() const {
    constexpr int64_t kLeastElems = 1 << 16, kLeastSide = 64;
    const int64_t n = ws_.extent, k = p_.k.extent;
    if (xs_.extent > kFew || n < kLeastSide || k < kLeastSide || n * k < kLeastElems) return false;
    if (few_are_rows_ ? p_.b_prologue.exists : p_.a_prologue.exists || p_.b_prologue.exists)
      return false;
    if ((few_are_rows_ ? p_.tasks_m : p_.tasks_n) != 1) return false;
    const int64_t room = p_.b_pack_bytes + p_.a_pack_bytes + p_.sums_bytes + p_.kept_bytes;
    return (w_is_by_k() || (w_is_by_rows() && xs_.extent <= kFewInVectors)) &&
           words_needed() * 4 <= room;
  }

  void run(int64_t first_task, int64_t last_task) {
    gemm_offsets(xs_, x_stride(), 0, xs_.extent, x_rows_);
    gemm_offsets(xs_, &GemmDim::c_stride, 0, xs_.extent, c_rows_);
    x_pairs_ = static_cast<uint32_t*>(workspace_);
    sums_ = static_cast<float*>(workspace_);
    x_floats_ = sums_ + 3 * kSums;
    const int64_t tasks = few_are_rows_ ? p_.tasks_n : p_.tasks_m,
                  share = few_are_rows_ ? p_.task_n : p_.task_m;
    int64_t packed = -1;  // the product of the batch whose x is packed
    for (int64_t t = first_task; t < last_task; ++t) {
      const int64_t batch = t / tasks, n0 = t % tasks * share,
                    n1 = std::min(n0 + share, ws_.extent);
      gemm_offsets(p_.batch, x_stride(), batch, 1, &x_batch_);
      gemm_offsets(p_.batch, w_stride(), batch, 1, &w_batch_);
      gemm_offsets(p_.batch, &GemmDim::c_stride, batch, 1, &c_batch_);
      if (w_is_by_k()) {
        if (packed != batch) pack_pairs();
        packed = batch;
        walk_columns(n0, n1);
      } else if (xs_.extent == 1) {
        walk_rows<1>(n0, n1);
      } else if (xs_.extent == 2) {
        walk_rows<2>(n0, n1);
      } else if (xs_.extent == 3) {
        walk_rows<3>(n0, n1);
      } else {
        walk_rows<4>(n0, n1);
      }
    }
  }

 private:
  static constexpr int64_t kFew = amx::kTile;        // most rows of x
  static constexpr int64_t kStepK = 2 * amx::kTile;  // k of a tile
  static constexpr int64_t kFewInVectors = 4;        // most rows of x for walk_rows()
  static constexpr int64_t kStepRows = 4;  // rows of w that are added to the sums at a time
  static constexpr int64_t kSums = 8192;   // sums (rows of x times columns of w) kept in the cache
  static constexpr int64_t kAheadBytes = 1024;  // prefetch distance within a column

  int64_t GemmDim::*x_stride() const {
    return few_are_rows_ ? &GemmDim::a_stride : &GemmDim::b_stride;
  }
  int64_t GemmDim::*w_stride() const {
    return few_are_rows_ ? &GemmDim::b_stride : &GemmDim::a_stride;
  }
  bool w_is_by_k() const { return p_.k.count == 1 && p_.k.dims[0].*w_stride() == 1; }
  bool w_is_by_rows() const { return ws_.count == 1 && ws_.dims[0].*w_stride() == 1; }
  // Words of x, packed as pairs.
  int64_t pairs_words() const {
    return (p_.k.extent + kStepK - 1) / kStepK * amx::kTile * xs_.extent;
  }
  int64_t words_needed() const {
    return w_is_by_k() ? pairs_words() : 3 * kSums + (kGemmBlockK + kStepRows) * xs_.extent;
  }

  // Calls f(k, row, element) for each element of x at k0 to k0 + kc, which is at most a K block.
  template <typename F>
  void each_x(int64_t k0, int64_t kc, F f) {
    int64_t ks[kGemmBlockK];
    const uint16_t* from = x_ + x_batch_;
    const int64_t *rows = x_rows_, *at = ks;
    if (few_are_rows_ && p_.a_prologue.exists) {
      from = static_cast<const uint16_t*>(
          run_prologue(p_.a_prologue, 0, xs_.extent, k0, kc, workspace_));
      rows = a_piece_.outer, at = a_piece_.ks;
    } else {
      gemm_offsets(p_.k, x_stride(), k0, kc, ks);
    }
    for (int64_t r = 0; r < xs_.extent; ++r)
      for (int64_t i = 0; i < kc; ++i) f(i, r, from[rows[r] + at[i]]);
  }
  // Packs x for tiles: [pair of k][row].
  void pack_pairs() {
    std::fill_n(x_pairs_, pairs_words(), 0u);
    auto* const words = reinterpret_cast<uint16_t*>(x_pairs_);
    for (int64_t k0 = 0; k0 < p_.k.extent; k0 += kGemmBlockK)
      each_x(k0, std::min(kGemmBlockK, p_.k.extent - k0), [&](int64_t i, int64_t r, uint16_t x) {
        const int64_t k = k0 + i;
        words[2 * (k / 2 * xs_.extent + r) + k % 2] = x;
      });
  }
  // Packs a K block of x for vectors: [k][row]; zeros up to a multiple of kStepRows.
  void pack_floats(int64_t k0, int64_t kc) {
    const int64_t rows = xs_.extent;
    std::fill_n(x_floats_ + kc * rows, (kStepRows - 1) * rows, 0.0f);
    each_x(k0, kc,
           [&](int64_t i, int64_t r, uint16_t x) { x_floats_[i * rows + r] = widen(Bf16{x}); });
  }

  // Writes columns [n0, n0 + cols) of C, at most 32, from piece[row][32].
  void write(const float* piece, int64_t n0, int64_t cols) {
    int64_t at[pairs::kCols];
    gemm_offsets(ws_, &GemmDim::c_stride, n0, cols, at);
    const auto put = [&](auto element) {
      pairs::put_piece(piece, static_cast<decltype(element)*>(c_) + c_batch_, c_rows_, xs_.extent,
                       at, cols, p_.accumulate);
    };
    if (p_.c == DType::kBF16) put(Bf16{});
    else if (p_.c == DType::kF16) put(F16{});
    else put(float{});
  }
  // Runs the epilogue, if there is one, on columns [n0, n1), which are final.
  void finish(int64_t n0, int64_t n1) {
    if (!p_.epilogue) return;
    if (few_are_rows_) run_epilogue(p_, 0, xs_.extent, n0, n1, workspace_);
    else run_epilogue(p_, n0, n1, 0, xs_.extent, workspace_);
  }

  // Computes columns [n0, n1) if columns of w are runs of memory: 16 columns are the rows of the
  // left tile, and the rows of the tile of sums.
  STOW_AMX void walk_columns(int64_t n0, int64_t n1) {
    const auto row_bytes = static_cast<uint16_t>(4 * xs_.extent);
    const amx::Tiles tiles({.out_bytes = row_bytes, .right_bytes = row_bytes});
    alignas(64) float sums[amx::kTile * kFew];
    alignas(64) float piece[kFew * pairs::kCols];
    int64_t finished = n0;
    for (int64_t n = n0; n < n1; n += pairs::kCols) {
      const int64_t cols = std::min(pairs::kCols, n1 - n);
      for (int64_t j = 0; j < cols; j += amx::kTile) {
        // The last tile may begin among columns before its own.
        const int64_t first = std::min(n + j, ws_.extent - amx::kTile), skipped = n + j - first;
        multiply_columns(first, sums);
        for (int64_t r = 0; r < xs_.extent; ++r)
          for (int64_t i = skipped; i < std::min(amx::kTile, skipped + cols - j); ++i)
            piece[r * pairs::kCols + j + i - skipped] = sums[i * xs_.extent + r];
      }
      write(piece, n, cols);
      if (n + cols - finished < kGemmEpilogueCols && n + cols < n1) continue;
      finish(finished, n + cols);
      finished = n + cols;
    }
  }

  // Computes sums[column][row] of 16 columns from `first` on.
  STOW_AMX void multiply_columns(int64_t first, float* sums) {
    int64_t at[2 * amx::kTile];
    const int64_t known = std::min(2 * amx::kTile, ws_.extent - first);
    gemm_offsets(ws_, w_stride(), first, known, at);
    const int64_t stride = at[1] - at[0], k_end = p_.k.extent;
    bool even = true;
    for (int64_t i = 2; i < amx::kTile; ++i) even = even && at[i] - at[i - 1] == stride;
    const uint16_t *from[amx::kTile], *next[amx::kTile];
    for (int64_t i = 0; i < amx::kTile; ++i) {
      from[i] = w_ + w_batch_ + at[i];
      next[i] = w_ + w_batch_ + at[std::min(amx::kTile + i, known - 1)];
    }
    constexpr int64_t kAhead = kAheadBytes / 2;
    alignas(64) uint16_t copy[amx::kTile * kStepK];
    const uint32_t* x = x_pairs_;
    const int64_t x_bytes = 4 * xs_.extent;
    __asm__ volatile("" ::: "memory");
    _tile_zero(0);
    for (int64_t k = 0; k < k_end; k += kStepK, x += amx::kTile * xs_.extent) {
      const bool wraps = k + kAhead >= k_end;
      const uint16_t* const* const ahead = wraps ? next : from;
      const int64_t ahead_k = wraps ? k + kAhead - k_end : k + kAhead;
#pragma GCC unroll 16
      for (int64_t i = 0; i < amx::kTile; ++i) _mm_prefetch(ahead[i] + ahead_k, _MM_HINT_T1);
      if (even && k + kStepK <= k_end) {
        _tile_loadd(4, from[0] + k, stride * 2);
      } else {
        const __mmask32 some = pairs::first32(k_end - k);
        for (int64_t i = 0; i < amx::kTile; ++i)
          _mm512_store_si512(copy + i * kStepK, _mm512_maskz_loadu_epi16(some, from[i] + k));
        __asm__ volatile("" ::: "memory");
        _tile_loadd(4, copy, 2 * kStepK);
      }
      _tile_loadd(6, x, x_bytes);
      _tile_dpbf16ps(0, 4, 6);
    }
    _tile_stored(0, sums, x_bytes);
    __asm__ volatile("" ::: "memory");
  }

  // Computes columns [n0, n1) if rows of w are runs of memory: adds a few rows at a time, times
  // their elements of x, to the sums of many columns, in vectors. As in tiles, the products at even
  // and at odd k of a step are summed separately, and subnormal numbers count as zeros.
  template <int R>
  STOW_AMX void walk_rows(int64_t n0, int64_t n1) {
    constexpr int64_t kCols = kSums / R / pairs::kCols * pairs::kCols;
    float *const even = sums_, *const odd = even + kSums, *const total = odd + kSums;
    alignas(64) float piece[kFew * pairs::kCols];
    int64_t ks[kGemmBlockK];
    for (int64_t n = n0; n < n1; n += kCols) {
      const int64_t cols = std::min(kCols, n1 - n);
      std::fill_n(total, kSums, 0.0f);
      const uint16_t* const base = w_ + w_batch_ + n;
      for (int64_t k0 = 0; k0 < p_.k.extent; k0 += kGemmBlockK) {
        const int64_t kc = std::min(kGemmBlockK, p_.k.extent - k0);
        gemm_offsets(p_.k, w_stride(), k0, kc, ks);
        pack_floats(k0, kc);
        add_block<R>(base, ks, kc, cols, even, odd, total);
      }
      for (int64_t j = 0; j < cols; j += pairs::kCols) {
        for (int r = 0; r < R; ++r)  // even columns, then odd ones
          for (int64_t i = 0; i < pairs::kCols; ++i)
            piece[r * pairs::kCols + i] = total[r * kCols + j + i % 2 * pairs::kLanes + i / 2];
        write(piece, n + j, std::min(pairs::kCols, cols - j));
      }
      for (int64_t j = 0; j < cols; j += kGemmEpilogueCols)
        finish(n + j, n + std::min(j + kGemmEpilogueCols, cols));
    }
  }

  // Adds a block of kc rows of w, in steps of 32, to the total.
  template <int R>
  STOW_AMX __attribute__((noinline)) void add_block(const uint16_t* base, const int64_t* ks,
                                                    int64_t kc, int64_t cols, float* even,
                                                    float* odd, float* total) {
    constexpr unsigned kZeroSubnormals = 0x8040;
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before | kZeroSubnormals);
    const float* x = x_floats_;
    for (int64_t k = 0; k < kc; k += kStepRows, x += kStepRows * R) {
      const bool begins = k % kStepK == 0,
                 ends = (k + kStepRows) % kStepK == 0 || k + kStepRows >= kc;
      const uint16_t* rows[kStepRows];
      // Rows missing from the last step contribute nothing: their elements of x are zeros.
      for (int64_t i = 0; i < kStepRows; ++i) rows[i] = base + ks[std::min(k + i, kc - 1)];
      if (begins && ends) add_rows<R, true, true>(rows, x, cols, even, odd, total);
      else if (begins) add_rows<R, true, false>(rows, x, cols, even, odd, total);
      else if (ends) add_rows<R, false, true>(rows, x, cols, even, odd, total);
      else add_rows<R, false, false>(rows, x, cols, even, odd, total);
    }
    _mm_setcsr(before);
  }

  // Adds kStepRows rows to the sums of even and odd k. These sums start from zero if kBegins; they
  // are added to the total if kEnds.
  template <int R, bool kBegins, bool kEnds>
  STOW_AMX static void add_rows(const uint16_t* const* rows, const float* x, int64_t cols,
                                float* even, float* odd, float* total) {
    constexpr int64_t kCols = kSums / R / pairs::kCols * pairs::kCols;
    const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
    __m512 by[kStepRows][R];
#pragma GCC unroll 4
    for (int i = 0; i < kStepRows; ++i)
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) by[i][r] = _mm512_set1_ps(x[i * R + r]);
    const auto add = [&](int64_t j, auto is_whole) STOW_AMX __attribute__((always_inline)) {
      const __mmask32 some = pairs::first32(cols - j);
      __m512i w[kStepRows];
#pragma GCC unroll 4
      for (int i = 0; i < kStepRows; ++i)
        w[i] = decltype(is_whole)::value ? _mm512_loadu_si512(rows[i] + j)
                                         : _mm512_maskz_loadu_epi16(some, rows[i] + j);
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {  // even columns, then odd ones
        __m512 sums[2][R];           // sums over even and odd k
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
          const int64_t at = r * kCols + j + h * pairs::kLanes;
          sums[0][r] = kBegins ? _mm512_setzero_ps() : _mm512_loadu_ps(even + at);
          sums[1][r] = kBegins ? _mm512_setzero_ps() : _mm512_loadu_ps(odd + at);
        }
#pragma GCC unroll 4
        for (int i = 0; i < kStepRows; ++i) {
          const __m512 columns = _mm512_castsi512_ps(h == 0 ? _mm512_slli_epi32(w[i], 16)
                                                            : _mm512_and_si512(w[i], high));
#pragma GCC unroll 4
          for (int r = 0; r < R; ++r)
            sums[i % 2][r] = _mm512_fmadd_ps(by[i][r], columns, sums[i % 2][r]);
        }
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
          const int64_t at = r * kCols + j + h * pairs::kLanes;
          if constexpr (kEnds) {
            const __m512 sum = _mm512_add_ps(sums[0][r], sums[1][r]);
            _mm512_storeu_ps(total + at, _mm512_add_ps(_mm512_loadu_ps(total + at), sum));
          } else {
            _mm512_storeu_ps(even + at, sums[0][r]);
            _mm512_storeu_ps(odd + at, sums[1][r]);
          }
        }
      }
    };
    int64_t j = 0;
    for (; j + pairs::kCols <= cols; j += pairs::kCols) add(j, std::true_type());
    if (j < cols) add(j, std::false_type());
  }

  const GemmPlan& p_;
  const bool few_are_rows_;
  const GemmDims &xs_, &ws_;
  const uint16_t *const x_, *const w_;
  void *const c_, *const workspace_;
  uint32_t* x_pairs_ = nullptr;
  float *sums_ = nullptr, *x_floats_ = nullptr;
  PieceOffsets a_piece_;
  int64_t x_batch_ = 0, w_batch_ = 0, c_batch_ = 0;
  int64_t x_rows_[kFew], c_rows_[kFew];
};

}  // namespace stow::cpu
