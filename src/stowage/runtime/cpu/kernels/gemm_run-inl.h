// The loops of a product around the micro-kernel: tiles, packing, partial sums, the way into C.
// Not the plan (gemm_plan.h) and not the threads (gemm.cpp): this is one thread's share.
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

#include "stowage/runtime/cpu/kernels/gemm_ahead.h"
#include "stowage/runtime/cpu/kernels/gemm_lanes-inl.h"
#include "stowage/runtime/cpu/kernels/gemm_micro-inl.h"
#include "stowage/runtime/cpu/kernels/gemm_pack-inl.h"
#include "stowage/runtime/cpu/kernels/gemm_plan.h"
#include "stowage/runtime/cpu/kernels/gemm_turned-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stow::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

static_assert(kGemmRowUnit % kRows == 0 && kGemmColUnit % kCols<float> == 0);

// A finished (or partial) piece of C in registers' reach, [rows, kCols<T>], into C. With `add`, the
// value is rounded to C's dtype, then added. `run`: columns are adjacent.
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

template <typename T>
void put(DType t, const T* tile, void* c, int64_t offset, const int64_t* row_offsets, int64_t rows,
         const int64_t* col_offsets, int64_t cols, bool run, bool add) {
  const auto into = [&](auto element) {
    put(tile, static_cast<decltype(element)*>(c) + offset, row_offsets, rows, col_offsets, cols, run,
        add);
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

/// One thread's share of a product: a tile of C at a time, K blocks inside.
template <typename T>
class GemmThread {
 public:
  GemmThread(const GemmPlan& plan, const void* a, const void* b, void* c, void* workspace)
      : p_(plan), a_(a), b_(b), c_(c), workspace_(workspace), a_piece_(plan.a_made, false),
        b_piece_(plan.b_made, true) {
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
    repeats_ = small && !plan.a_made.is && !plan.b_made.is && !plan.finish &&
               plan.m.extent <= std::min(plan.tile_m, plan.block_m) &&
               plan.n.extent <= plan.tile_n && plan.k.extent * plan.n.extent <= kSmallB;
    const int64_t m = plan.m.extent, n = plan.n.extent, k = plan.k.extent;
    takes_lanes_ = sizeof(T) == 4 && kHasSimd && small && !plan.accumulate && !plan.finish &&
                   plan.batch.extent >= kLanesOf<T> && m * k <= kLaneElems && k * n <= kLaneElems &&
                   m * n * k <= kLaneWork;
    is_long_dot_ = kTurns && m == 1 && n == 1 && k >= kLongDot && !plan.accumulate &&
                   !plan.finish && !plan.a_made.is && !plan.b_made.is && plan.k.count == 1 &&
                   plan.k.dims[0].a_stride == 1 && plan.k.dims[0].b_stride == 1 &&
                   plan.a == plan.b && plan.a != DType::kF16;
    const int64_t b_bytes = plan.k.extent * plan.n.extent * int64_t{sizeof(T)};
    b_out_ = b_bytes > 1 << 20;
    b_far_ = b_bytes > 4 << 20;
  }

  void run(int64_t first_task, int64_t last_task) {
    if constexpr (sizeof(T) == 4 && kHasSimd)
      if (takes_lanes_) return lanes(first_task, last_task);
    if constexpr (kTurns)
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
  // Products [first, last) of a batch, as many at a time as there are lanes.
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
    const bool turns = c_is_sum_ && is_run(ce.at, ce.count);
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
      if (turns) {
        turn_out(reinterpret_cast<const float*>(c), ce.count,
                 static_cast<float*>(c_) + ce.at[0], c_at, count);
      } else {
        for (int64_t e = 0; e < ce.count; ++e)
          for (int64_t l = 0; l < count; ++l)
            put(p_.c, c + e * kLanes + l, c_, c_at[l] + ce.at[e], &kNone, 1, &kNone, 1, false, false);
      }
    }
  }

  // Products of two long vectors each.
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

  // Does for the next product of a batch what was done for the one before, at other addresses.
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
        (b_ahead_.done() ? a_ahead_ : b_ahead_).next(calls_[i].lines, args.a, args.fetch);
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
      const int64_t block_m = reads_a && !is_a_near() ? kFarRows : p_.block_m;
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
        if (p_.a_made.is)
          pack<kRows>(p_.a, fill_piece(p_.a_made, m, rows, k0, kc, workspace_), 0, a_piece_.outer, rows,
                      a_piece_.ks, kc, a_pack_);
        else if (!a_in_place_)
          pack<kRows>(p_.a, a_, a_batch_, a_rows_, rows, a_ks_, kc, a_pack_);
        // The next block of A, of these k or the next.
        const bool turn = m + block_m >= m1;
        const int64_t next_m = turn ? m0 : m + block_m, next_k = turn ? k0 + kGemmBlockK : k0;
        const int64_t next_rows = std::min(block_m, m1 - next_m);
        if (p_.a_made.is)
          ahead(a_ahead_, p_.a_made, next_m, next_rows, next_k);
        else if (!batch_ahead_ && !(reads_a && is_a_near()))
          ahead(a_ahead_, p_.a, a_, a_batch_, &GemmDim::a_stride, p_.m, next_m, next_rows, next_k);
        block({m, n0, k0, kc, rows, cols, m == m0}, sums_ + (m - m0) * p_.tile_n);
      }
    }
  }

  // The operands of a product of a batch that is short and comes next, of those before `end`.
  void fetch_product(int64_t batch, int64_t end) {
    a_ahead_.stop();
    b_ahead_.stop();
    if (batch >= end) return;
    int64_t a, b;
    gemm_offsets(p_.batch, &GemmDim::a_stride, batch, 1, &a);
    gemm_offsets(p_.batch, &GemmDim::b_stride, batch, 1, &b);
    ahead(a_ahead_, p_.a, a_, a, &GemmDim::a_stride, p_.m, 0, p_.m.extent, 0);
    ahead(b_ahead_, p_.b, b_, b, &GemmDim::b_stride, p_.n, 0, p_.n.extent, 0);
  }

  void ahead(GemmAhead& of, DType t, const void* base, int64_t batch, int64_t GemmDim::*stride,
             const GemmDims& outer, int64_t first, int64_t n, int64_t k) {
    const int64_t bytes = dtype_bytes(t);
    of.stop();
    if ((large_ || batch_ahead_) && k < p_.k.extent)
      of.start(static_cast<const char*>(base) + batch * bytes, bytes, stride, outer, first, n, p_.k,
               k, std::min(kGemmBlockK, p_.k.extent - k));
  }

  void ahead(GemmAhead& of, const GemmPlan::Made& made, int64_t first, int64_t n, int64_t k) {
    of.stop();
    if (large_ && k < p_.k.extent)
      of.start(made, first, n, k, std::min(kGemmBlockK, p_.k.extent - k));
  }

  bool is_a_near() const { return p_.m.extent * p_.k.extent <= kNearA; }
  // True if rows of A are read where they are, provided that they are evenly spaced: a short walk
  // over B does not repay packing them. Rows of an A that is far are read a few at a time: they are
  // fetched, and too many would drive each other out of caches, as do the rows of a micro-kernel a
  // page or more apart if the first cache has too few ways.
  bool may_read_a(int64_t cols) const {
    if (p_.a_made.is || b_turned_ || !a_ks_run_ || dtype_bytes(p_.a) != sizeof(T)) return false;
    if (is_a_near()) return cols <= kFewCols;
    const int64_t step = p_.m.count == 1 ? p_.m.dims[0].a_stride * int64_t{sizeof(T)} : 0;
    return cols <= kFewColsOfFar && step != 0 && (step % kPage != 0 || kRows <= first_cache_ways());
  }

  // Decides if panels of B are read where they are: as rows of whole vectors of the right type, if
  // all of it is small or needed once; or as columns of them, for few rows.
  void place_b(int64_t kc, int64_t rows) {
    b_stride_ = kc > 1 ? b_ks_[1] - b_ks_[0] : 0;
    b_even_ = !p_.b_made.is && dtype_bytes(p_.b) == sizeof(T) && b_ks_even_;
    b_in_place_ = b_even_ && b_cols_run_[0] &&
                  (rows <= kRows || (b_stride_ >= 0 && kc * b_stride_ <= kSmallB));
    b_turned_ = kTurns && b_even_ && b_ks_run_ && !b_cols_run_[0] &&
                rows <= (b_far_ ? 3 * kRows : kRows) && kc >= kLanesOf<T>;
  }

  void pack_b(int64_t n0, int64_t k0, int64_t kc, int64_t j, int64_t cols) {
    static_assert(kCols<T> <= kGemmColUnit);
    if (b_turned_) return;
    if (p_.b_made.is) {
      // A piece is of several panels, where vectors are short: its rows would be too short as well.
      if (j % kGemmColUnit != 0) return;
      const int64_t n = std::min(kGemmColUnit, cols - j);
      const void* const piece = fill_piece(p_.b_made, n0 + j, n, k0, kc, workspace_);
      for (int64_t i = 0; i < n; i += kCols<T>)
        pack<kCols<T>>(p_.b, piece, 0, b_piece_.outer + i, std::min<int64_t>(kCols<T>, n - i),
                       b_piece_.ks, kc, b_pack_ + (j + i) * kc);
    } else if (!b_in_place_ || !b_cols_run_[j / kCols<T>]) {
      pack_part(kc, j, cols, 0, kc);
    }
  }
  // Packs the steps [from, to) of k of a panel of B.
  void pack_part(int64_t kc, int64_t j, int64_t cols, int64_t from, int64_t to) {
    pack<kCols<T>>(p_.b, b_, b_batch_, b_cols_ + j, std::min<int64_t>(kCols<T>, cols - j),
                   b_ks_ + from, to - from, b_pack_ + j * kc + from * kCols<T>);
  }

  // True if n panels of B from column j on are rows of whole adjacent vectors.
  bool whole_panels(int64_t j, int64_t cols, int64_t n) const {
    return j + n * kCols<T> <= cols && is_run(b_cols_ + j, n * kCols<T>);
  }

  // A block of A times a tile of B.
  struct Block {
    int64_t m0, n0, k0, kc, rows, cols;
    bool first;  // the tile of B is yet to be packed
  };

  // The inner loop runs over the smaller operand. A large tile of B is packed a panel at a time,
  // shortly before its first use or by it.
  void block(const Block& x, T* sums) {
    const bool finishes = p_.finish && last_k_;
    a_from_ = 0;
    if (x.kc * x.cols <= kSmallB) {
      for (int64_t j = 0; x.first && j < x.cols; j += kCols<T>) pack_b(x.n0, x.k0, x.kc, j, x.cols);
      for (int64_t i = 0; i < x.rows; i += kRows)
        for (int64_t j = 0; j < x.cols;) j += piece(x.kc, i, x.rows, j, x.cols, sums, false);
      if (finishes) finish_piece(p_, x.m0, x.m0 + x.rows, x.n0, x.n0 + x.cols, workspace_);
      return;
    }
    if (!batch_ahead_) b_ahead_.stop();
    const int64_t n_products = (x.rows + kRows - 1) / kRows;  // products with a panel of B
    // The next block of A is fetched late: the tile of B that passes by would drive it out.
    const int64_t a_panel = std::max<int64_t>(x.kc / kFetchEvery * n_products, 1);
    a_from_ = x.cols - (a_ahead_.left() / a_panel + 2) * kCols<T>;
    // A panel that is not packed in passing is packed a few k after each product of the one before,
    // whose arithmetic does not wait for what is moved.
    const int64_t few = ((x.kc + n_products - 1) / n_products + kFewK - 1) / kFewK * kFewK;
    bool packed = false;
    int64_t finished = 0;  // columns that the epilogue has had
    for (int64_t j = 0, w = 0; j < x.cols; j += w) {
      const bool packs = x.first && packs_in_passing(j, x.rows);
      if (x.first && !packs && !packed) pack_b(x.n0, x.k0, x.kc, j, x.cols);
      const int64_t next = j + kCols<T>;
      const bool moves = x.first && !b_in_place_ && !b_turned_ && !p_.b_made.is;
      packed = moves && next < x.cols && !packs_in_passing(next, x.rows);
      if (moves && !batch_ahead_) {
        const int64_t far = packed ? next + kCols<T> : next;  // the next panel is near already
        ahead(b_ahead_, p_.b, b_, b_batch_, &GemmDim::b_stride, p_.n, x.n0 + far,
              std::min<int64_t>(kCols<T>, x.cols - far), x.k0);
      } else if (x.first && p_.b_made.is && j % kGemmColUnit == 0) {
        const int64_t far = j + kGemmColUnit;
        ahead(b_ahead_, p_.b_made, x.n0 + far, std::min(kGemmColUnit, x.cols - far), x.k0);
      }
      for (int64_t i = 0, k = 0; i < x.rows; i += kRows) {
        w = piece(x.kc, i, x.rows, j, x.cols, sums, packs && i == 0);
        if (b_far_ || p_.b_made.is)
          b_ahead_.fetch_rest(micro_lines<T>(x.kc, a_in_place_),
                              std::max<int64_t>(x.rows / kRows - 1 - i / kRows, 0));
        if (!packed || k >= x.kc) continue;
        pack_part(x.kc, next, x.cols, k, std::min(k + few, x.kc));
        k += few;
      }
      if (!finishes || !is_finish_due(p_, finished, j + w, x.cols)) continue;
      finish_piece(p_, x.m0, x.m0 + x.rows, x.n0 + finished, x.n0 + j + w, workspace_);
      finished = j + w;
    }
  }

  // True if the first product with a panel of B packs it. The panel has rows of whole vectors of
  // the right type.
  bool packs_in_passing(int64_t j, int64_t rows) const {
    return !b_in_place_ && !a_in_place_ && b_even_ && b_cols_run_[j / kCols<T>] && rows >= kRows &&
           j + kCols<T> <= n_.count;
  }

  // One panel of A times one of B (or some that lie in a row), on its way into C; packs that of B
  // in passing if asked. Returns the columns done, the same for every i.
  HWY_INLINE int64_t piece(int64_t kc, int64_t i, int64_t rows, int64_t j, int64_t cols, T* sums,
                           bool packs) {
    const int64_t h = std::min<int64_t>(kRows, rows - i);
    if constexpr (kTurns)
      if (b_turned_) return turned_piece(kc, i, h, j, cols, sums);
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
      GemmAhead& next = b_ahead_.done() && j >= a_from_ ? a_ahead_ : b_ahead_;
      next.next(lines, a, args.fetch);
    }
    const bool to_sums = p_.partial_sums && !last_k_;
    const bool b_direct = b_in_place_ && b_cols_run_[j / kCols<T>];
    if (packs || b_direct) {
      b = static_cast<const T*>(b_) + b_batch_ + b_cols_[j] + b_ks_[0];
      b_stride = b_stride_;
      if (b_out_) b_ahead = kPassAhead * b_stride;
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

  // One panel of A times a vector of columns of B as they lie. Returns the columns done.
  HWY_INLINE int64_t turned_piece(int64_t kc, int64_t i, int64_t rows, int64_t j, int64_t cols, float* sums) {
    constexpr int64_t kLanes = kLanesOf<float>;
    repeats_ = false;
    const int64_t w = std::min(kLanes, cols - j);
    const bool turn = j + w == cols;  // to the first columns, the next k
    const float* const base = static_cast<const float*>(b_) + b_batch_ + b_ks_[0];
    const float *from[kLanes], *ahead[kLanes];
    for (int64_t r = 0; r < kLanes; ++r) {
      from[r] = base + b_cols_[j + std::min(r, w - 1)];
      ahead[r] = base + b_cols_[std::min((turn ? 0 : j + w) + r, cols - 1)] + (turn ? kc : 0);
    }
    const auto multiply = [&](float* out, ptrdiff_t out_stride, const float* before, ptrdiff_t before_stride) {
      kTurned<T>[rows - 1]({kc, a_pack_ + i * kc, from, ahead, out, out_stride, before, before_stride, w});
    };
    into_c(i, rows, j, w, sums, multiply);
    return w;
  }

  // Has rows [i, i + h) and columns [j, j + w) of a tile multiplied to where they go: among the sums, in
  // C, or on their way there.
  template <typename Multiply>
  HWY_INLINE void into_c(int64_t i, int64_t h, int64_t j, int64_t w, T* sums, Multiply multiply) {
    if (p_.partial_sums && !last_k_) {
      T* to = sums + i * p_.tile_n + j;
      multiply(to, p_.tile_n, first_k_ ? nullptr : to, p_.tile_n);
    } else if (made_in_c() && (w > kCols<T> || c_cols_run_[j / kCols<T>]) && c_rows_even_[i / kRows]) {
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

  // A range whose offsets are at hand; in a batch of small products it stays the same.
  struct Range {
    int64_t first = -1, count = 0;
    friend bool operator==(const Range&, const Range&) = default;
  };
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

  static constexpr int64_t kFewK = 16;  // steps of k packed at once between products

  static constexpr int64_t kSmallB = 16384;  // elements of B that stay near while A goes by

  static constexpr bool kTurns = kHasSimd && std::is_same_v<T, float>;

  static constexpr int64_t kLarge = 1 << 17;  // elements of an operand that is read ahead
  static constexpr int64_t kLeastAhead = 1 << 16;  // multiply-adds to fetch the next product by

  static constexpr int64_t kFewCols = 256;  // on a walk over which A is used too little to pack it
  static constexpr int64_t kNearA = 1 << 20;      // elements of A for which that holds
  static constexpr int64_t kFewColsOfFar = 64;    // likewise of a larger one,
  static constexpr int64_t kFarRows = 2 * kRows;  // read so many rows at a time
  static constexpr int64_t kPage = 4096;
  static constexpr int kMaxCalls = 64;

  static constexpr int64_t kLaneWork = 1024;  // multiply-adds of a product that takes a lane
  static constexpr int64_t kLongDot = 4096;   // K of which enough blocks are lanes
  static constexpr int64_t kNone = 0;

  const GemmPlan& p_;
  const void *a_, *b_;
  void *c_, *workspace_;
  T *b_pack_, *a_pack_, *sums_;
  bool c_is_sum_, large_, first_k_ = false, last_k_ = false;
  bool batch_ahead_;  // products are small, and each a task: the next one is fetched
  bool takes_lanes_;  // they are smaller still
  bool is_long_dot_;  // two vectors of many K blocks
  bool repeats_;      // they are few calls each, the same for all: those of the first are kept
  bool a_in_place_ = false, b_in_place_ = false, b_even_ = false;
  // B lies beyond the second cache; well beyond, where to turn it more than once is soonest.
  bool b_out_ = false, b_far_ = false;
  bool b_turned_ = false;  // columns of B are read where they are, and turned
  bool a_ks_run_ = false, b_ks_run_ = false, b_ks_even_ = false, a_rows_even_ = false;
  struct Call {
    MicroFn<T> run;
    MicroArgs<T> args;
    int64_t lines;  // cache lines that it prefetches
    bool b_in_place;
  };
  Call calls_[kMaxCalls];
  int n_calls_ = 0;
  struct {
    int64_t a, b, c;
  } at_{};  // the product at which they are
  GemmAhead a_ahead_, b_ahead_;
  PieceOffsets a_piece_, b_piece_;
  int64_t a_from_ = 0;  // the column of a tile from which on A is fetched ahead
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
