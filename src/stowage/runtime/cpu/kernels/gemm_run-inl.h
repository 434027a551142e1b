// One thread's share of a product: the loops around the micro-kernel over tiles, packing, partial
// sums and stores to C.
// Not the plan (gemm_plan.h) and not the threads (gemm.cpp).
#if defined(STOW_KERNELS_GEMM_RUN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STOW_KERNELS_GEMM_RUN_INL_H_
#undef STOW_KERNELS_GEMM_RUN_INL_H_
#else
#define STOW_KERNELS_GEMM_RUN_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "stowage/runtime/cpu/kernels/gemm_lanes-inl.h"
#include "stowage/runtime/cpu/kernels/gemm_micro-inl.h"
#include "stowage/runtime/cpu/kernels/gemm_pack-inl.h"
#include "stowage/runtime/cpu/kernels/gemm_plan.h"
#include "stowage/runtime/cpu/kernels/gemm_prefetch.h"
#include "stowage/runtime/cpu/kernels/gemm_transpose_b-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stow::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

static_assert(kGemmRowUnit % kRows == 0 && kGemmColUnit % kCols<float> == 0);

// Writes a piece of sums, tile[rows][kCols<T>], to C, rounded to its dtype. If `add`, adds the
// rounded piece to C. `run`: the columns of C are adjacent.
template <typename T, typename C>
HWY_NOINLINE void put(const T* tile, C* c, const int64_t* row_offsets, int64_t rows,
                      const int64_t* col_offsets, int64_t cols, bool run, bool add) {
  constexpr int kLanes = kLanesOf<T>;
  for (int64_t r = 0; r < rows; ++r, tile += kCols<T>) {
    C* HWY_RESTRICT to = c + row_offsets[r];
    int64_t j = 0;
    if constexpr (kHasSimd && (std::is_same_v<T, C> || std::is_same_v<T, float>)) {
      const hn::ScalableTag<T> d;
      for (; run && j + kLanes <= cols; j += kLanes) {
        C* const at = to + col_offsets[j];
        auto v = hn::LoadU(d, tile + j);
        if (add) {
          HWY_ALIGN C rounded[kLanes];
          store_narrow(v, d, rounded);
          v = hn::Add(load_wide(d, at), load_wide(d, rounded));
        }
        store_narrow(v, d, at);
      }
    }
    for (; j < cols; ++j) {
      C& element = to[col_offsets[j]];
      if constexpr (std::is_integral_v<T>) {
        element = static_cast<C>(add ? element + tile[j] : tile[j]);
      } else {
        using Narrow = std::conditional_t<std::is_same_v<C, double>, double, float>;
        C value;
        narrow(static_cast<Narrow>(tile[j]), value);
        if (add) narrow(widen(element) + widen(value), value);
        element = value;
      }
    }
  }
}

// As above for a C of dtype t that begins `offset` elements after c.
template <typename T>
void put(DType t, const T* tile, void* c, int64_t offset, const int64_t* row_offsets, int64_t rows,
         const int64_t* col_offsets, int64_t cols, bool run, bool add) {
  const auto into = [&](auto element) {
    put(tile, static_cast<decltype(element)*>(c) + offset, row_offsets, rows, col_offsets, cols,
        run, add);
  };
  if constexpr (std::is_integral_v<T>) {
    if (dtype_bytes(t) == 1) return into(uint8_t{});
  } else {
    if (t == DType::kBF16) return into(Bf16{});
    if (t == DType::kF16) return into(F16{});
    if constexpr (sizeof(T) == 8)
      if (t == DType::kF32) return into(float{});
  }
  into(T{});
}

/// One thread's share of a product. It computes a tile of C at a time, and in it K block after K
/// block. T is the type of the sums.
template <typename T>
class GemmThread {
 public:
  GemmThread(const GemmPlan& plan, const void* a, const void* b, void* c, void* workspace)
      : p_(plan), a_(a), b_(b), c_(c), workspace_(workspace), a_piece_(plan.a_prologue, false),
        b_piece_(plan.b_prologue, true) {
    char* at = static_cast<char*>(workspace);
    b_pack_ = reinterpret_cast<T*>(at);
    a_pack_ = reinterpret_cast<T*>(at + plan.b_pack_bytes);
    sums_ = reinterpret_cast<T*>(at + plan.b_pack_bytes + plan.a_pack_bytes);
    c_is_sum_ = dtype_bytes(plan.c) == sizeof(T);
    large_ = plan.k.extent * std::max(plan.m.extent, plan.n.extent) >= kLarge;
    const bool small = plan.batch.extent > 1 && plan.tasks_m * plan.tasks_n == 1 && !large_ &&
                       plan.k.extent <= kGemmBlockK;
    batch_ahead_ = small && plan.m.extent >= kRows &&
                   plan.m.extent * plan.n.extent * plan.k.extent >= kLeastAhead;
    repeats_ = small && !plan.a_prologue.exists && !plan.b_prologue.exists && !plan.epilogue &&
               plan.m.extent <= std::min(plan.tile_m, plan.block_m) &&
               plan.n.extent <= plan.tile_n && plan.k.extent * plan.n.extent <= kSmallB;
    const int64_t m = plan.m.extent, n = plan.n.extent, k = plan.k.extent;
    takes_lanes_ = sizeof(T) == 4 && kHasSimd && small && !plan.accumulate && !plan.epilogue &&
                   plan.batch.extent >= kLanesOf<T> && m * k <= kLaneElems && k * n <= kLaneElems &&
                   m * n * k <= kLaneWork;
    is_long_dot_ = kCanTransposeB && m == 1 && n == 1 && k >= kLongDot && !plan.accumulate &&
                   !plan.epilogue && !plan.a_prologue.exists && !plan.b_prologue.exists &&
                   plan.k.count == 1 && plan.k.dims[0].a_stride == 1 &&
                   plan.k.dims[0].b_stride == 1 && plan.a == plan.b && plan.a != DType::kF16;
    const int64_t b_bytes = plan.k.extent * plan.n.extent * int64_t{sizeof(T)};
    b_exceeds_l2_ = b_bytes > 1 << 20;
    b_far_exceeds_l2_ = b_bytes > 4 << 20;
  }

  void run(int64_t first_task, int64_t last_task) {
    if constexpr (sizeof(T) == 4 && kHasSimd)
      if (takes_lanes_) return lanes(first_task, last_task);
    if constexpr (kCanTransposeB)
      if (is_long_dot_) return long_dots(first_task, last_task);
    for_each_gemm_tile(p_, first_task, last_task,
                       [&](int64_t batch, int64_t m0, int64_t m1, int64_t n0, int64_t n1) {
                         gemm_offsets(p_.batch, &GemmDim::a_stride, batch, 1, &a_batch_);
                         gemm_offsets(p_.batch, &GemmDim::b_stride, batch, 1, &b_batch_);
                         gemm_offsets(p_.batch, &GemmDim::c_stride, batch, 1, &c_batch_);
                         if (batch_ahead_ && m0 == 0 && n0 == 0)
                           fetch_product(batch + 1, last_task);
                         if (!repeats_) return tile(m0, m1, n0, n1);
                         if (n_calls_ > 0) return repeat();
                         at_ = {a_batch_, b_batch_, c_batch_};
                         tile(m0, m1, n0, n1);
                       });
  }

 private:
  // Computes products [first, last) of a batch, one in each lane of a vector.
  void lanes(int64_t first, int64_t last) {
    constexpr int64_t kLanes = kLanesOf<T>;
    const int64_t m = p_.m.extent, n = p_.n.extent, k = p_.k.extent;
    int64_t rows[kLaneElems], cols[kLaneElems], ks[kLaneElems];
    LaneElements ae, be, ce;
    const auto offsets = [](const GemmDims& i, const GemmDims& j, int64_t GemmDim::*stride,
                            int64_t* is, int64_t* js, LaneElements& to) {
      gemm_offsets(i, stride, 0, i.extent, is);
      gemm_offsets(j, stride, 0, j.extent, js);
      to.set(is, i.extent, js, j.extent);
    };
    offsets(p_.m, p_.k, &GemmDim::a_stride, rows, ks, ae);
    offsets(p_.k, p_.n, &GemmDim::b_stride, ks, cols, be);
    offsets(p_.m, p_.n, &GemmDim::c_stride, rows, cols, ce);
    const bool transposes = c_is_sum_ && is_run(ce.at, ce.count);
    HWY_ALIGN T a[kLaneElems * kLanes];
    HWY_ALIGN T b[kLaneElems * kLanes];
    HWY_ALIGN T c[kLaneElems * kLanes];
    int64_t a_at[kLanes], b_at[kLanes], c_at[kLanes];
    for (int64_t at = first; at < last; at += kLanes) {
      const int64_t count = std::min(kLanes, last - at);
      gemm_offsets(p_.batch, &GemmDim::a_stride, at, count, a_at);
      gemm_offsets(p_.batch, &GemmDim::b_stride, at, count, b_at);
      gemm_offsets(p_.batch, &GemmDim::c_stride, at, count, c_at);
      pack<kLanes>(p_.a, a_, 0, a_at, count, ae.at, ae.count, a);
      pack<kLanes>(p_.b, b_, 0, b_at, count, be.at, be.count, b);
      multiply_lanes(ae, be, ce, a, b, c, m, n, k);
      if (transposes) {
        store_transposed(reinterpret_cast<const float*>(c), ce.count,
                 static_cast<float*>(c_) + ce.at[0], c_at, count);
      } else {
        for (int64_t e = 0; e < ce.count; ++e)
          for (int64_t l = 0; l < count; ++l)
            put(p_.c, c + e * kLanes + l, c_, c_at[l] + ce.at[e], &kNone, 1, &kNone, 1, false,
                false);
      }
    }
  }

  // Computes products [first, last) of a batch, each the dot product of two long vectors.
  void long_dots(int64_t first, int64_t last) {
    const int64_t k = p_.k.extent, blocks = k / kGemmBlockK;
    for (int64_t at = first; at < last; ++at) {
      gemm_offsets(p_.batch, &GemmDim::a_stride, at, 1, &a_batch_);
      gemm_offsets(p_.batch, &GemmDim::b_stride, at, 1, &b_batch_);
      gemm_offsets(p_.batch, &GemmDim::c_stride, at, 1, &c_batch_);
      const auto dot = [&](const auto* a, const auto* b) {
        const float total = dot_blocks(a, b, blocks);
        if (k == blocks * kGemmBlockK) return total;
        auto rest = hn::Zero(hn::CappedTag<float, 1>());  // fused as in the micro-kernel
        const hn::CappedTag<float, 1> d1;
        for (int64_t i = blocks * kGemmBlockK; i < k; ++i)
          rest = hn::MulAdd(hn::Set(d1, widen(a[i])), hn::Set(d1, widen(b[i])), rest);
        return total + hn::GetLane(rest);
      };
      const float total = p_.a == DType::kBF16
                              ? dot(static_cast<const Bf16*>(a_) + a_batch_,
                                    static_cast<const Bf16*>(b_) + b_batch_)
                              : dot(static_cast<const float*>(a_) + a_batch_,
                                    static_cast<const float*>(b_) + b_batch_);
      put(p_.c, &total, c_, c_batch_, &kNone, 1, &kNone, 1, false, false);
    }
  }

  // Computes the next product of a batch by the micro-kernel calls of the one before, with the
  // addresses moved.
  void repeat() {
    const int64_t k = p_.k.extent, cols = p_.n.extent;
    if (!a_in_place_) pack<kRows>(p_.a, a_, a_batch_, a_rows_, p_.m.extent, a_ks_, k, a_pack_);
    for (int64_t j = 0; j < cols; j += kCols<T>) pack_b(0, 0, k, j, cols);
    const int64_t a = a_batch_ - at_.a, b = b_batch_ - at_.b, c = c_batch_ - at_.c;
    for (int i = 0; i < n_calls_; ++i) {
      MicroArgs<T>& args = calls_[i].args;
      if (a_in_place_) args.a += a;
      if (calls_[i].b_in_place) args.b += b;
      args.out += c;
      if (args.prev != nullptr) args.prev += c;
      if (batch_ahead_ && calls_[i].lines > 0)
        (b_prefetcher_.done() ? a_prefetcher_ : b_prefetcher_)
            .next(calls_[i].lines, args.a, args.fetch);
      calls_[i].run(args);
    }
    at_ = {a_batch_, b_batch_, c_batch_};
  }

  void tile(int64_t m0, int64_t m1, int64_t n0, int64_t n1) {
    const int64_t cols = n1 - n0;
    if (changed(n_, {n0, cols})) {
      gemm_offsets(p_.n, &GemmDim::b_stride, n0, cols, b_cols_);
      gemm_offsets(p_.n, &GemmDim::c_stride, n0, cols, c_cols_);
      for (int64_t j = 0; j < cols; j += kCols<T>) {
        const int64_t w = std::min<int64_t>(kCols<T>, cols - j);
        b_cols_run_[j / kCols<T>] = w % kLanesOf<T> == 0 && is_run(b_cols_ + j, w);
        c_cols_run_[j / kCols<T>] = is_run(c_cols_ + j, w);
      }
    }
    for (int64_t k0 = 0; k0 < p_.k.extent; k0 += kGemmBlockK) {
      const int64_t kc = std::min(kGemmBlockK, p_.k.extent - k0);
      if (changed(k_, {k0, kc})) {
        gemm_offsets(p_.k, &GemmDim::a_stride, k0, kc, a_ks_);
        gemm_offsets(p_.k, &GemmDim::b_stride, k0, kc, b_ks_);
        a_ks_run_ = is_run(a_ks_, kc);
        b_ks_run_ = is_run(b_ks_, kc);
        b_ks_even_ = evenly_spaced(b_ks_, kc);
      }
      place_b(kc, m1 - m0);
      first_k_ = k0 == 0;
      last_k_ = k0 + kc == p_.k.extent;
      const bool reads_a = may_read_a(cols);
      const int64_t block_m = reads_a && !a_stays_in_cache() ? kFarRows : p_.block_m;
      for (int64_t m = m0; m < m1; m += block_m) {
        const int64_t rows = std::min(block_m, m1 - m);
        if (changed(m_, {m, rows})) {
          gemm_offsets(p_.m, &GemmDim::a_stride, m, rows, a_rows_);
          gemm_offsets(p_.m, &GemmDim::c_stride, m, rows, c_rows_);
          a_rows_even_ = evenly_spaced(a_rows_, rows);
          for (int64_t i = 0; i < rows; i += kRows)
            c_rows_even_[i / kRows] =
                evenly_spaced(c_rows_ + i, std::min<int64_t>(kRows, rows - i));
        }
        a_in_place_ = reads_a && rows > kWideRows && a_rows_even_;
        if (p_.a_prologue.exists)
          pack<kRows>(p_.a, run_prologue(p_.a_prologue, m, rows, k0, kc, workspace_), 0,
                      a_piece_.outer, rows, a_piece_.ks, kc, a_pack_);
        else if (!a_in_place_)
          pack<kRows>(p_.a, a_, a_batch_, a_rows_, rows, a_ks_, kc, a_pack_);
        // The next block of A: the next rows at these k, or the first rows at the next k.
        const bool wraps = m + block_m >= m1;
        const int64_t next_m = wraps ? m0 : m + block_m, next_k = wraps ? k0 + kGemmBlockK : k0;
        const int64_t next_rows = std::min(block_m, m1 - next_m);
        if (p_.a_prologue.exists)
          ahead(a_prefetcher_, p_.a_prologue, next_m, next_rows, next_k);
        else if (!batch_ahead_ && !(reads_a && a_stays_in_cache()))
          ahead(a_prefetcher_, p_.a, a_, a_batch_, &GemmDim::a_stride, p_.m, next_m, next_rows,
                next_k);
        block({m, n0, k0, kc, rows, cols, m == m0}, sums_ + (m - m0) * p_.tile_n);
      }
    }
  }

  // Starts to prefetch the operands of product `batch` of a batch of small products; none from
  // `end` on.
  void fetch_product(int64_t batch, int64_t end) {
    a_prefetcher_.stop();
    b_prefetcher_.stop();
    if (batch >= end) return;
    int64_t a, b;
    gemm_offsets(p_.batch, &GemmDim::a_stride, batch, 1, &a);
    gemm_offsets(p_.batch, &GemmDim::b_stride, batch, 1, &b);
    ahead(a_prefetcher_, p_.a, a_, a, &GemmDim::a_stride, p_.m, 0, p_.m.extent, 0);
    ahead(b_prefetcher_, p_.b, b_, b, &GemmDim::b_stride, p_.n, 0, p_.n.extent, 0);
  }

  void ahead(GemmPrefetcher& of, DType t, const void* base, int64_t batch, int64_t GemmDim::*stride,
             const GemmDims& outer, int64_t first, int64_t n, int64_t k) {
    const int64_t bytes = dtype_bytes(t);
    of.stop();
    if ((large_ || batch_ahead_) && k < p_.k.extent)
      of.start(static_cast<const char*>(base) + batch * bytes, bytes, stride, outer, first, n, p_.k,
               k, std::min(kGemmBlockK, p_.k.extent - k));
  }

  void ahead(GemmPrefetcher& of, const GemmPlan::Prologue& prologue, int64_t first, int64_t n,
             int64_t k) {
    of.stop();
    if (large_ && k < p_.k.extent)
      of.start(prologue, first, n, k, std::min(kGemmBlockK, p_.k.extent - k));
  }

  // True if A is small enough to stay in cache.
  bool a_stays_in_cache() const { return p_.m.extent * p_.k.extent <= kNearA; }
  // True if rows of A are read in place if they are evenly spaced: `cols` columns are too few to
  // repay packing. An A that is not in cache is read a few rows at a time, since prefetched rows
  // would evict each other. It is packed if its rows are a multiple of a page apart and the L1
  // cache has fewer ways than a micro-kernel has rows.
  bool may_read_a(int64_t cols) const {
    if (p_.a_prologue.exists || transposes_b_ || !a_ks_run_ || dtype_bytes(p_.a) != sizeof(T))
      return false;
    if (a_stays_in_cache()) return cols <= kFewCols;
    const int64_t step = p_.m.count == 1 ? p_.m.dims[0].a_stride * int64_t{sizeof(T)} : 0;
    return cols <= kFewColsOfFar && step != 0 && (step % kPage != 0 || kRows <= l1_ways());
  }

  // Decides if panels of B are read in place. Rows of B that are whole vectors of type T are, if
  // the K block is small or used once. Columns of B that are runs of memory are, and transposed in
  // registers (transposes_b_), if there are few rows.
  void place_b(int64_t kc, int64_t rows) {
    b_stride_ = kc > 1 ? b_ks_[1] - b_ks_[0] : 0;
    b_even_ = !p_.b_prologue.exists && dtype_bytes(p_.b) == sizeof(T) && b_ks_even_;
    b_in_place_ = b_even_ && b_cols_run_[0] &&
                  (rows <= kRows || (b_stride_ >= 0 && kc * b_stride_ <= kSmallB));
    transposes_b_ = kCanTransposeB && b_even_ && b_ks_run_ && !b_cols_run_[0] &&
                    rows <= (b_far_exceeds_l2_ ? 3 * kRows : kRows) && kc >= kLanesOf<T>;
  }

  void pack_b(int64_t n0, int64_t k0, int64_t kc, int64_t j, int64_t cols) {
    static_assert(kCols<T> <= kGemmColUnit);
    if (transposes_b_) return;
    if (p_.b_prologue.exists) {
      // With short vectors, a prologue's piece is several panels: rows of one would be too short.
      if (j % kGemmColUnit != 0) return;
      const int64_t n = std::min(kGemmColUnit, cols - j);
      const void* const piece = run_prologue(p_.b_prologue, n0 + j, n, k0, kc, workspace_);
      for (int64_t i = 0; i < n; i += kCols<T>)
        pack<kCols<T>>(p_.b, piece, 0, b_piece_.outer + i, std::min<int64_t>(kCols<T>, n - i),
                       b_piece_.ks, kc, b_pack_ + (j + i) * kc);
    } else if (!b_in_place_ || !b_cols_run_[j / kCols<T>]) {
      pack_part(kc, j, cols, 0, kc);
    }
  }
  // Packs k in [from, to) of the panel of B at column j.
  void pack_part(int64_t kc, int64_t j, int64_t cols, int64_t from, int64_t to) {
    pack<kCols<T>>(p_.b, b_, b_batch_, b_cols_ + j, std::min<int64_t>(kCols<T>, cols - j),
                   b_ks_ + from, to - from, b_pack_ + j * kc + from * kCols<T>);
  }

  // True if the n panels of B from column j on are complete and their columns adjacent.
  bool whole_panels(int64_t j, int64_t cols, int64_t n) const {
    return j + n * kCols<T> <= cols && is_run(b_cols_ + j, n * kCols<T>);
  }

  // A block of A and a tile of B: rows [m0, m0 + rows), columns [n0, n0 + cols), k [k0, k0 + kc).
  struct Block {
    int64_t m0, n0, k0, kc, rows, cols;
    bool first;  // the first block of the tile: B has to be packed
  };

  // Multiplies a block of A by a tile of B. The inner loop runs over the smaller operand. A large
  // tile of B is packed a panel at a time, shortly before its first product or by that product.
  void block(const Block& x, T* sums) {
    const bool finishes = p_.epilogue && last_k_;
    a_from_ = 0;
    if (x.kc * x.cols <= kSmallB) {
      for (int64_t j = 0; x.first && j < x.cols; j += kCols<T>) pack_b(x.n0, x.k0, x.kc, j, x.cols);
      for (int64_t i = 0; i < x.rows; i += kRows)
        for (int64_t j = 0; j < x.cols;) j += piece(x.kc, i, x.rows, j, x.cols, sums, false);
      if (finishes) run_epilogue(p_, x.m0, x.m0 + x.rows, x.n0, x.n0 + x.cols, workspace_);
      return;
    }
    if (!batch_ahead_) b_prefetcher_.stop();
    const int64_t n_products = (x.rows + kRows - 1) / kRows;  // products with a panel of B
    // The next block of A is prefetched late: earlier, the reads of B would evict it.
    const int64_t a_panel = std::max<int64_t>(x.kc / kFetchEvery * n_products, 1);
    a_from_ = x.cols - (a_prefetcher_.left() / a_panel + 2) * kCols<T>;
    // A panel that its first product does not pack is packed a few k at a time between the products
    // of the panel before, whose arithmetic does not wait for these moves.
    const int64_t few = ((x.kc + n_products - 1) / n_products + kFewK - 1) / kFewK * kFewK;
    bool packed = false;
    int64_t finished = 0;  // columns for which the epilogue has run
    for (int64_t j = 0, w = 0; j < x.cols; j += w) {
      const bool packs = x.first && packs_during_product(j, x.rows);
      if (x.first && !packs && !packed) pack_b(x.n0, x.k0, x.kc, j, x.cols);
      const int64_t next = j + kCols<T>;
      const bool moves = x.first && !b_in_place_ && !transposes_b_ && !p_.b_prologue.exists;
      packed = moves && next < x.cols && !packs_during_product(next, x.rows);
      if (moves && !batch_ahead_) {
        const int64_t far = packed ? next + kCols<T> : next;  // the next panel is near already
        ahead(b_prefetcher_, p_.b, b_, b_batch_, &GemmDim::b_stride, p_.n, x.n0 + far,
              std::min<int64_t>(kCols<T>, x.cols - far), x.k0);
      } else if (x.first && p_.b_prologue.exists && j % kGemmColUnit == 0) {
        const int64_t far = j + kGemmColUnit;
        ahead(b_prefetcher_, p_.b_prologue, x.n0 + far, std::min(kGemmColUnit, x.cols - far), x.k0);
      }
      for (int64_t i = 0, k = 0; i < x.rows; i += kRows) {
        w = piece(x.kc, i, x.rows, j, x.cols, sums, packs && i == 0);
        if (b_far_exceeds_l2_ || p_.b_prologue.exists)
          b_prefetcher_.fetch_rest(micro_lines<T>(x.kc, a_in_place_),
                                   std::max<int64_t>(x.rows / kRows - 1 - i / kRows, 0));
        if (!packed || k >= x.kc) continue;
        pack_part(x.kc, next, x.cols, k, std::min(k + few, x.kc));
        k += few;
      }
      if (!finishes || !is_epilogue_due(p_, finished, j + w, x.cols)) continue;
      run_epilogue(p_, x.m0, x.m0 + x.rows, x.n0 + finished, x.n0 + j + w, workspace_);
      finished = j + w;
    }
  }

  // True if the first product with the panel of B at column j packs it. The panel then has rows of
  // whole vectors of type T.
  bool packs_during_product(int64_t j, int64_t rows) const {
    return !b_in_place_ && !a_in_place_ && b_even_ && b_cols_run_[j / kCols<T>] && rows >= kRows &&
           j + kCols<T> <= n_.count;
  }

  // Multiplies the panel of A at row i by the panel of B at column j (or several adjacent panels)
  // into sums or C. `packs`: packs the panel of B at the same time. Returns the number of columns
  // done, the same for every i.
  HWY_INLINE int64_t piece(int64_t kc, int64_t i, int64_t rows, int64_t j, int64_t cols, T* sums,
                           bool packs) {
    const int64_t h = std::min<int64_t>(kRows, rows - i);
    if constexpr (kCanTransposeB)
      if (transposes_b_) return transpose_b_piece(kc, i, h, j, cols, sums);
    int64_t w = std::min<int64_t>(kCols<T>, cols - j);
    const bool two = w > kLanesOf<T>;
    MicroFn<T> run = two ? kMicro<2, false, T>[h - 1] : kMicro<1, false, T>[h - 1];
    const T* a = a_pack_ + i * kc;
    ptrdiff_t a_stride = 0;
    if (a_in_place_) {
      a = static_cast<const T*>(a_) + a_batch_ + a_rows_[i] + a_ks_[0];
      a_stride = rows > 1 ? a_rows_[1] - a_rows_[0] : 0;
      run = two ? kMicro<2, true, T>[h - 1] : kMicro<1, true, T>[h - 1];
    }
    const T* b = b_pack_ + j * kc;
    ptrdiff_t b_stride = kCols<T>;
    ptrdiff_t b_ahead = 0;
    T* packed = nullptr;
    if (packs) {
      run = kPackingMicro<T>;
      packed = b_pack_ + j * kc;
    }
    MicroArgs<T> args;
    const int64_t lines = micro_fetches(h, two, a_in_place_) ? micro_lines<T>(kc, a_in_place_) : 0;
    if (lines > 0) {
      GemmPrefetcher& next = b_prefetcher_.done() && j >= a_from_ ? a_prefetcher_ : b_prefetcher_;
      next.next(lines, a, args.fetch);
    }
    const bool to_sums = p_.partial_sums && !last_k_;
    const bool b_direct = b_in_place_ && b_cols_run_[j / kCols<T>];
    if (packs || b_direct) {
      b = static_cast<const T*>(b_) + b_batch_ + b_cols_[j] + b_ks_[0];
      b_stride = b_stride_;
      if (b_exceeds_l2_) b_ahead = kPassAhead * b_stride;
      constexpr int64_t kWide = kWideVectors / 2;
      static_assert(kWideRows < kRows);  // as few rows do not pack
      if (rows <= kWideRows && !a_in_place_ && whole_panels(j, cols, kWide) &&
          (to_sums || (made_in_c() && is_run(c_cols_ + j, kWide * kCols<T>)))) {
        w = kWide * kCols<T>;
        run = kWideMicro<T>[h - 1];
      }
    }
    const auto multiply = [&](T* out, ptrdiff_t out_stride, const T* before,
                              ptrdiff_t before_stride) {
      args.out = out, args.out_stride = out_stride;
      args.prev = before, args.prev_stride = before_stride;
      run(args);
      if (!repeats_) return;
      repeats_ = n_calls_ < kMaxCalls;
      if (repeats_) calls_[n_calls_++] = {run, args, lines, b_direct};
    };
    args.kc = kc, args.cols = w, args.packed = packed;
    args.a = a, args.a_stride = a_stride;
    args.b = b, args.b_stride = b_stride, args.b_ahead = b_ahead;
    into_c(i, h, j, w, sums, multiply);
    return w;
  }

  // Multiplies the panel of A at row i by a vector's number of columns of B, read in place. Returns
  // the number of columns done.
  HWY_INLINE int64_t transpose_b_piece(int64_t kc, int64_t i, int64_t rows, int64_t j, int64_t cols,
                                       float* sums) {
    constexpr int64_t kLanes = kLanesOf<float>;
    repeats_ = false;
    const int64_t w = std::min(kLanes, cols - j);
    const bool wraps = j + w == cols;  // next come the first columns at the next k
    const float* const base = static_cast<const float*>(b_) + b_batch_ + b_ks_[0];
    const float *from[kLanes], *ahead[kLanes];
    for (int64_t r = 0; r < kLanes; ++r) {
      from[r] = base + b_cols_[j + std::min(r, w - 1)];
      ahead[r] = base + b_cols_[std::min((wraps ? 0 : j + w) + r, cols - 1)] + (wraps ? kc : 0);
    }
    const auto multiply = [&](float* out, ptrdiff_t out_stride, const float* before,
                              ptrdiff_t before_stride) {
      kMicroTransposeB<T>[rows - 1](
          {kc, a_pack_ + i * kc, from, ahead, out, out_stride, before, before_stride, w});
    };
    into_c(i, rows, j, w, sums, multiply);
    return w;
  }

  // Calls multiply(out, out_stride, prev, prev_stride) for rows [i, i + h) and columns [j, j + w)
  // of a tile, with `out` in the partial sums, in C, or in a buffer that is then written to C.
  template <typename Multiply>
  HWY_INLINE void into_c(int64_t i, int64_t h, int64_t j, int64_t w, T* sums, Multiply multiply) {
    if (p_.partial_sums && !last_k_) {
      T* to = sums + i * p_.tile_n + j;
      multiply(to, p_.tile_n, first_k_ ? nullptr : to, p_.tile_n);
    } else if (made_in_c() && (w > kCols<T> || c_cols_run_[j / kCols<T>]) &&
               c_rows_even_[i / kRows]) {
      T* to = static_cast<T*>(c_) + c_batch_ + c_rows_[i] + c_cols_[j];
      const ptrdiff_t stride = h > 1 ? c_rows_[i + 1] - c_rows_[i] : 0;
      multiply(to, stride, first_k_ && !p_.accumulate ? nullptr : to, stride);
    } else {
      repeats_ = false;
      HWY_ALIGN T sum[kRows * kCols<T>];
      const T* before = p_.partial_sums && !first_k_ ? sums + i * p_.tile_n + j : nullptr;
      for (int64_t r = 0; r < h; ++r)
        __builtin_prefetch(static_cast<const char*>(c_) +
                           (c_batch_ + c_rows_[i + r] + c_cols_[j]) * dtype_bytes(p_.c), 1);
      multiply(sum, kCols<T>, before, p_.tile_n);
      put(p_.c, sum, c_, c_batch_, c_rows_ + i, h, c_cols_ + j, w, c_cols_run_[j / kCols<T>],
          p_.partial_sums ? p_.accumulate : p_.accumulate || !first_k_);
    }
  }

  // True if C itself holds the sums between K blocks, or is the addend of the only K block.
  bool made_in_c() const { return c_is_sum_ && !p_.partial_sums; }

  // The range whose offsets are computed; for a batch of small products it stays the same.
  struct Range {
    int64_t first = -1, count = 0;
    friend bool operator==(const Range&, const Range&) = default;
  };
  // Sets `range` to `to`. Returns true if they differed.
  static bool changed(Range& range, Range to) {
    if (range == to) return false;
    range = to;
    return true;
  }

  static bool evenly_spaced(const int64_t* offsets, int64_t n) {
    for (int64_t i = 2; i < n; ++i)
      if (offsets[i] - offsets[i - 1] != offsets[1] - offsets[0]) return false;
    return true;
  }

  static constexpr int64_t kFewK = 16;  // unit of the k packed between two products

  static constexpr int64_t kSmallB = 16384;  // most elements of B that stay in cache during a block

  // True if micro_transpose_b() exists.
  static constexpr bool kCanTransposeB = kHasSimd && std::is_same_v<T, float>;

  static constexpr int64_t kLarge = 1 << 17;  // least elements of an operand to prefetch it
  static constexpr int64_t kLeastAhead = 1 << 16;  // least multiply-adds to prefetch the next one

  static constexpr int64_t kFewCols = 256;        // most columns for which A is not packed
  static constexpr int64_t kNearA = 1 << 20;      // most elements of an A that stays in cache
  static constexpr int64_t kFewColsOfFar = 64;    // kFewCols for a larger A,
  static constexpr int64_t kFarRows = 2 * kRows;  // of which so many rows are read at a time
  static constexpr int64_t kPage = 4096;          // bytes
  static constexpr int kMaxCalls = 64;            // most micro-kernel calls that repeat() repeats

  static constexpr int64_t kLaneWork = 1024;  // most multiply-adds of a product in a lane
  static constexpr int64_t kLongDot = 4096;   // least K of a dot product with K blocks in lanes
  static constexpr int64_t kNone = 0;         // an offset of zero

  const GemmPlan& p_;
  const void *a_, *b_;
  void *c_, *workspace_;
  T *b_pack_, *a_pack_, *sums_;
  // C has elements of the size of sums; an operand is large enough to prefetch; the current K block
  // is the first; it is the last.
  bool c_is_sum_, large_, first_k_ = false, last_k_ = false;
  bool batch_ahead_;  // a batch of small products, a task each: the next one is prefetched
  bool takes_lanes_;  // a batch of very small products, computed in a lane each
  bool is_long_dot_;  // the product is a dot product of many K blocks
  bool repeats_;      // a batch of products of a few equal calls: those of the first are recorded
  bool a_in_place_ = false, b_in_place_ = false, b_even_ = false;
  // True if B exceeds the L2 cache; true if by so much that transposing it more than once is
  // fastest.
  bool b_exceeds_l2_ = false, b_far_exceeds_l2_ = false;
  bool transposes_b_ = false;  // columns of B are read in place and transposed in registers
  bool a_ks_run_ = false, b_ks_run_ = false, b_ks_even_ = false, a_rows_even_ = false;
  struct Call {
    MicroFn<T> run;
    MicroArgs<T> args;
    int64_t lines;  // cache lines that it prefetches
    bool b_in_place;
  };
  Call calls_[kMaxCalls];  // recorded for repeat()
  int n_calls_ = 0;
  struct {
    int64_t a, b, c;
  } at_{};  // offsets of the product whose addresses calls_ have
  GemmPrefetcher a_prefetcher_, b_prefetcher_;
  PieceOffsets a_piece_, b_piece_;
  int64_t a_from_ = 0;  // first column of a tile during whose products the next A is prefetched
  ptrdiff_t b_stride_ = 0;
  Range m_, n_, k_;
  int64_t a_batch_ = 0, b_batch_ = 0, c_batch_ = 0;
  int64_t a_ks_[kGemmBlockK], b_ks_[kGemmBlockK];
  int64_t a_rows_[kGemmMaxBlockM], c_rows_[kGemmMaxBlockM];
  int64_t b_cols_[kGemmMaxTileN], c_cols_[kGemmMaxTileN];
  // Flags of each panel: rows of C evenly spaced; columns of B adjacent, in whole vectors; columns
  // of C adjacent.
  bool c_rows_even_[kGemmMaxBlockM / kRows], b_cols_run_[kGemmMaxTileN / kCols<T>],
      c_cols_run_[kGemmMaxTileN / kCols<T>];
};

}  // namespace stow::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
