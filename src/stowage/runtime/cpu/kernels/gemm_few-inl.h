// Products of a few rows of A with a large B, which is read once, in place, in long runs of memory
// that suit the hardware prefetcher. Sums have the order of gemm_micro-inl.h.
// Not for small products, nor for a B that a prologue computes.
#if defined(STOW_KERNELS_GEMM_FEW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STOW_KERNELS_GEMM_FEW_INL_H_
#undef STOW_KERNELS_GEMM_FEW_INL_H_
#else
#define STOW_KERNELS_GEMM_FEW_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "stowage/runtime/cpu/kernels/gemm_micro-inl.h"
#include "stowage/runtime/cpu/kernels/gemm_pack-inl.h"
#include "stowage/runtime/cpu/kernels/gemm_plan.h"
#include "stowage/runtime/cpu/kernels/gemm_run-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stow::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kFewRows = 4;  // most rows of such a product

/// True if one thread's share of `p` is best computed by FewRows: few rows, and a B of at least 128
/// KiB whose rows or columns are runs of memory.
inline bool takes_few_rows(const GemmPlan& p) {
  constexpr int64_t kLeastElems = 1 << 15, kLeastSide = 64;
  const int64_t n = p.n.extent, k = p.k.extent;
  if (!kHasSimd || p.m.extent > kFewRows || p.b_prologue.exists || n < kLeastSide ||
      k < kLeastSide || n * k < kLeastElems)
    return false;
  return (p.n.count == 1 && p.n.dims[0].b_stride == 1) ||
         (p.k.count == 1 && p.k.dims[0].b_stride == 1);
}

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// One thread's share of a product of R rows with a B of elements of type B.
template <int R, typename B>
class FewRows {
 public:
  FewRows(const GemmPlan& plan, const void* a, const void* b, void* c, void* workspace)
      : p_(plan), a_(a), b_(static_cast<const B*>(b)), c_(c), workspace_(workspace),
        large_(static_cast<float*>(workspace)), n_large_(plan.b_pack_bytes / 4),
        small_(large_ + n_large_), n_small_(plan.a_pack_bytes / 4),
        a_piece_(plan.a_prologue, false) {
    gemm_offsets(p_.m, &GemmDim::a_stride, 0, R, a_rows_);
    gemm_offsets(p_.m, &GemmDim::c_stride, 0, R, c_rows_);
  }

  void run(int64_t first_task, int64_t last_task) {
    const bool rows_are_runs = p_.n.count == 1 && p_.n.dims[0].b_stride == 1;
    for (int64_t t = first_task; t < last_task; ++t) {
      const int64_t batch = t / p_.tasks_n, n0 = t % p_.tasks_n * p_.task_n;
      const int64_t n1 = std::min(n0 + p_.task_n, p_.n.extent);
      gemm_offsets(p_.batch, &GemmDim::a_stride, batch, 1, &a_batch_);
      gemm_offsets(p_.batch, &GemmDim::b_stride, batch, 1, &b_batch_);
      gemm_offsets(p_.batch, &GemmDim::c_stride, batch, 1, &c_batch_);
      packed_k_ = -1;
      if (rows_are_runs) walk_rows(n0, n1);
      else walk_columns(n0, n1);
    }
  }

 private:
  static constexpr hn::ScalableTag<float> d{};
  using V = hn::Vec<hn::ScalableTag<float>>;
  static constexpr int64_t kLanes = kLanesOf<float>;
  static constexpr int64_t kStep = 4;           // rows of B that are added to the sums at a time
  static constexpr int64_t kMostCols = 4096;    // columns at a time, so that sums stay in cache
  static constexpr int64_t kAheadBytes = 512;   // prefetch distance within a column

  // Packs elements [k0, k0 + kc) of the rows of A, as to[k][R].
  void pack_a(int64_t k0, int64_t kc, float* to) {
    int64_t ks[kGemmBlockK];
    for (int64_t k = 0; k < kc; k += kGemmBlockK, to += kGemmBlockK * R) {
      const int64_t n = std::min(kGemmBlockK, kc - k);
      const void* from = a_;
      const int64_t *rows = a_rows_, *at = ks;
      int64_t offset = a_batch_;
      if (p_.a_prologue.exists) {
        from = run_prologue(p_.a_prologue, 0, R, k0 + k, n, workspace_);
        rows = a_piece_.outer, at = a_piece_.ks, offset = 0;
      } else {
        gemm_offsets(p_.k, &GemmDim::a_stride, k0 + k, n, ks);
      }
      const auto pack = [&](const auto* elements) {
        for (int r = 0; r < R; ++r)
          for (int64_t i = 0; i < n; ++i) to[i * R + r] = widen(elements[offset + rows[r] + at[i]]);
      };
      if (p_.a == DType::kBF16) pack(static_cast<const Bf16*>(from));
      else if (p_.a == DType::kF16) pack(static_cast<const F16*>(from));
      else pack(static_cast<const float*>(from));
    }
  }

  // Writes columns [n0, n0 + cols) into C. The sums of row r are at sums + r * stride.
  void write(const float* sums, int64_t stride, int64_t n0, int64_t cols) {
    constexpr int64_t kAtOnce = kCols<float>;
    HWY_ALIGN float piece[R * kAtOnce];
    int64_t at[kAtOnce];
    for (int64_t j = 0; j < cols; j += kAtOnce) {
      const int64_t w = std::min(kAtOnce, cols - j);
      for (int r = 0; r < R; ++r) std::copy_n(sums + r * stride + j, w, piece + r * kAtOnce);
      gemm_offsets(p_.n, &GemmDim::c_stride, n0 + j, w, at);
      put(p_.c, piece, c_, c_batch_, c_rows_, R, at, w, is_run(at, w), p_.accumulate);
    }
    if (!p_.epilogue) return;
    for (int64_t j = 0; j < cols; j += kGemmEpilogueCols)
      run_epilogue(p_, 0, R, n0 + j, n0 + std::min(j + kGemmEpilogueCols, cols), workspace_);
  }

  // Computes columns [n0, n1) if rows of B are runs of memory: adds a few rows at a time, times
  // their elements of A, to the sums of many columns.
  void walk_rows(int64_t n0, int64_t n1) {
    // Room for the sums of a K block, then for the sums of all K blocks so far.
    const int64_t room = n_large_ / (2 * R) / kLanes * kLanes;
    const int64_t most = std::min(room, kMostCols);
    const int64_t pieces = (n1 - n0 + most - 1) / most;
    const int64_t width = ((n1 - n0 + pieces - 1) / pieces + kLanes - 1) / kLanes * kLanes;
    float *const block = large_, *const total = large_ + R * room;
    int64_t ks[kGemmBlockK];
    for (int64_t n = n0; n < n1; n += width) {
      // No piece is narrower than a vector: the last one may overlap the one before.
      const int64_t cols = std::max(std::min(width, n1 - n), kLanes),
                    first = std::min(n, n1 - cols);
      for (int64_t k0 = 0; k0 < p_.k.extent; k0 += kGemmBlockK) {
        const int64_t kc = std::min(kGemmBlockK, p_.k.extent - k0);
        pack_a(k0, kc, small_);
        gemm_offsets(p_.k, &GemmDim::b_stride, k0, kc, ks);
        const B* const base = b_ + b_batch_ + first;
        int64_t k = 0;
        for (; k + kStep <= kc; k += kStep)
          add_rows<kStep>(base, ks + k, small_ + k * R, cols, k == 0, block, room);
        for (; k < kc; ++k) add_rows<1>(base, ks + k, small_ + k * R, cols, k == 0, block, room);
        for (int r = 0; r < R; ++r)
          for (int64_t j = 0; j < cols; j += kLanes) {
            const V sum = hn::LoadU(d, block + r * room + j);
            float* const to = total + r * room + j;
            hn::StoreU(k0 == 0 ? sum : hn::Add(hn::LoadU(d, to), sum), d, to);
          }
      }
      // The last vector ends with the columns and repeats some of those before it.
      if (const int64_t rest = cols % kLanes; rest != 0)
        for (int r = 0; r < R; ++r) {
          float* const last = total + r * room + cols - rest;
          std::copy_n(last + kLanes - rest, rest, last);
        }
      write(total + (n - first), room, n, first + cols - n);
    }
  }

  // sums[r][j] += a[s][r] * base[ks[s] + j] for s in order; from zero if `begins`.
  template <int kRowsOfB>
  HWY_INLINE void add_rows(const B* base, const int64_t* ks, const float* a, int64_t cols,
                           bool begins, float* sums, int64_t stride) {
    const B* rows[kRowsOfB];
    V x[kRowsOfB][R];
    HWY_UNROLL(8) for (int s = 0; s < kRowsOfB; ++s) {
      rows[s] = base + ks[s];
      HWY_UNROLL(8) for (int r = 0; r < R; ++r) x[s][r] = hn::Set(d, a[s * R + r]);
    }
    for (int64_t j = 0; j < cols; j += kLanes) {
      const int64_t at = std::min(j, cols - kLanes);
      V sum[R];
      HWY_UNROLL(8) for (int r = 0; r < R; ++r)
        sum[r] = begins ? hn::Zero(d) : hn::LoadU(d, sums + r * stride + j);
      HWY_UNROLL(8) for (int s = 0; s < kRowsOfB; ++s) {
        const V row = load_wide(d, rows[s] + at);
        HWY_UNROLL(8) for (int r = 0; r < R; ++r) sum[r] = hn::MulAdd(x[s][r], row, sum[r]);
      }
      HWY_UNROLL(8) for (int r = 0; r < R; ++r) hn::StoreU(sum[r], d, sums + r * stride + j);
    }
  }

  // Computes columns [n0, n1) if columns of B are runs of memory: square blocks of B are transposed
  // in registers, one after another along k.
  void walk_columns(int64_t n0, int64_t n1) {
    const int64_t most_k = n_large_ / R / kGemmBlockK * kGemmBlockK;  // k of A in the workspace
    const int64_t most_n = std::min<int64_t>(n_small_ / R / kLanes * kLanes, kGemmFewRowsTileN);
    const int64_t k_end = p_.k.extent;
    const int64_t depth = k_end <= n_large_ / R ? k_end : most_k;
    int64_t offsets[kGemmFewRowsTileN + kLanes];
    for (int64_t n = n0; n < n1; n += most_n) {
      const int64_t cols = std::min(most_n, n1 - n);
      const int64_t known = std::min(cols + kLanes, n1 - n);  // includes the columns fetched next
      gemm_offsets(p_.n, &GemmDim::b_stride, n, known, offsets);
      for (int64_t k0 = 0; k0 < k_end; k0 += depth) {
        const int64_t kc = std::min(depth, k_end - k0);
        if (packed_k_ != k0) pack_a(k0, kc, large_);
        packed_k_ = k0;
        const B* const base = b_ + b_batch_ + k0;
        for (int64_t j = 0; j < cols; j += kLanes) {
          const B *from[kLanes], *next[kLanes];
          for (int64_t l = 0; l < kLanes; ++l) {
            from[l] = base + offsets[std::min(j + l, cols - 1)];
            next[l] = base + offsets[std::min(j + kLanes + l, known - 1)];
          }
          multiply_columns(kc, from, next, k0 == 0, small_ + j, most_n);
        }
      }
      write(small_, most_n, n, cols);
    }
  }

  // sums[r][l] += sum over kc elements k of a[r][k] * from[l][k], from zero if `begins`. Prefetches
  // the columns `next`.
  HWY_NOINLINE void multiply_columns(int64_t kc, const B* const* from, const B* const* next,
                                     bool begins, float* sums, int64_t stride) {
    constexpr int64_t kAhead = kAheadBytes / int64_t{sizeof(B)};
    // Two bf16 are transposed as one word.
    constexpr bool kPairs = std::is_same_v<B, Bf16>;
    constexpr int64_t kSide = kPairs ? 2 * kLanes : kLanes;
    const float* a = large_;
    V total[R];
    for (int64_t k0 = 0; k0 < kc; k0 += kGemmBlockK) {
      const int64_t k1 = std::min(k0 + kGemmBlockK, kc);
      V sum[R];
      HWY_UNROLL(8) for (int r = 0; r < R; ++r) sum[r] = hn::Zero(d);
      int64_t k = k0;
      for (; k + kSide <= k1; k += kSide, a += kSide * R) {
        const bool wraps = k + kAhead >= kc;
        const B* const* const ahead = wraps ? next : from;
        const int64_t ahead_k = wraps ? k + kAhead - kc : k + kAhead;
        V square[kLanes];
        HWY_UNROLL(16) for (int l = 0; l < kLanes; ++l) {
          if constexpr (kPairs)
            square[l] = hn::LoadU(d, reinterpret_cast<const float*>(from[l] + k));
          else square[l] = load_wide(d, from[l] + k);
          __builtin_prefetch(ahead[l] + ahead_k, 0, 2);
        }
        transpose_square(d, square);
        HWY_UNROLL(16) for (int i = 0; i < kLanes; ++i) {
          const auto add = [&](const float* x, V column) HWY_ATTR {
            HWY_UNROLL(8)
            for (int r = 0; r < R; ++r) sum[r] = hn::MulAdd(hn::Set(d, x[r]), column, sum[r]);
          };
          if constexpr (kPairs) {
            const hn::RebindToUnsigned<decltype(d)> du;
            const auto words = hn::BitCast(du, square[i]);
            add(a + 2 * i * R, hn::BitCast(d, hn::ShiftLeft<16>(words)));
            add(a + (2 * i + 1) * R, hn::BitCast(d, hn::And(words, hn::Set(du, 0xffff0000u))));
          } else {
            add(a + i * R, square[i]);
          }
        }
      }
      HWY_ALIGN float column[kLanes];
      for (; k < k1; ++k, a += R) {
        for (int64_t l = 0; l < kLanes; ++l) column[l] = widen(from[l][k]);
        const V v = hn::Load(d, column);
        HWY_UNROLL(8) for (int r = 0; r < R; ++r) sum[r] = hn::MulAdd(hn::Set(d, a[r]), v, sum[r]);
      }
      HWY_UNROLL(8) for (int r = 0; r < R; ++r) {
        if (k0 == 0) total[r] = begins ? sum[r] : hn::Add(hn::LoadU(d, sums + r * stride), sum[r]);
        else total[r] = hn::Add(total[r], sum[r]);
      }
    }
    HWY_UNROLL(8) for (int r = 0; r < R; ++r) hn::StoreU(total[r], d, sums + r * stride);
  }

  const GemmPlan& p_;
  const void* const a_;
  const B* const b_;
  void *const c_, *const workspace_;
  // The parts of the workspace that other products use for a packed B (large_) and a packed A
  // (small_). walk_rows() keeps sums in large_ and A in small_, walk_columns() the reverse.
  float* const large_;
  const int64_t n_large_;  // floats
  float* const small_;
  const int64_t n_small_;
  PieceOffsets a_piece_;
  int64_t packed_k_ = -1;  // first k of the A that is packed in large_; -1: none
  int64_t a_batch_ = 0, b_batch_ = 0, c_batch_ = 0;
  int64_t a_rows_[R], c_rows_[R];
};

template <typename B>
void run_few_rows(const GemmPlan& p, const void* a, const void* b, void* c, void* workspace,
                  int64_t first_task, int64_t last_task) {
  const auto run = [&](auto rows) {
    FewRows<decltype(rows)::value, B>(p, a, b, c, workspace).run(first_task, last_task);
  };
  static_assert(kFewRows == 4);
  if (p.m.extent == 1) run(std::integral_constant<int, 1>());
  else if (p.m.extent == 2) run(std::integral_constant<int, 2>());
  else if (p.m.extent == 3) run(std::integral_constant<int, 3>());
  else run(std::integral_constant<int, 4>());
}
/// Computes tasks [first_task, last_task) of a plan for which takes_few_rows() is true.
inline void run_few_rows(const GemmPlan& p, const void* a, const void* b, void* c, void* workspace,
                         int64_t first_task, int64_t last_task) {
  if (p.b == DType::kBF16) return run_few_rows<Bf16>(p, a, b, c, workspace, first_task, last_task);
  if (p.b == DType::kF16) return run_few_rows<F16>(p, a, b, c, workspace, first_task, last_task);
  run_few_rows<float>(p, a, b, c, workspace, first_task, last_task);
}

#else

inline void run_few_rows(const GemmPlan&, const void*, const void*, void*, void*, int64_t,
                         int64_t) {}

#endif

}  // namespace stow::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
