// Reductions of f32 of a row program as vector code: those of rows, and the choice of all.
// The order of every sum is the contract of ir/row_program.h.
#include <type_traits>

#include "stowage/runtime/cpu/kernels/row_kernels.h"
#include "stowage/runtime/cpu/kernels/row_scalar.h"
#include "stowage/runtime/cpu/kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stowage/runtime/cpu/kernels/row_kernels_reduce.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "stowage/ir/row_program.h"
#include "stowage/runtime/cpu/kernels/row_reduce_columns-inl.h"
#include "stowage/runtime/cpu/kernels/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stow::cpu::HWY_NAMESPACE {

// Sixteen lanes from data[i..], the first `n` of them; the others are 0. kPlain: of floats.
template <bool kWhole, bool kPlain>
HWY_INLINE void load_lanes(DF d, const Row& row, size_t i, size_t n, VF (&v)[kVectors]) {
  const size_t lanes = hn::Lanes(d);
  if constexpr (kWhole && kPlain) {
    for (size_t k = 0; k < kVectors; ++k)
      v[k] = hn::LoadU(d, reinterpret_cast<const float*>(row.data) + ((i + k * lanes) & row.mask));
    return;
  }
  const std::byte* data = row.data;
#if HWY_TARGET <= HWY_AVX2 && HWY_ARCH_X86
  // Masked loads touch no memory outside of the mask on these machines.
  if (!kWhole && row.mask != 0 && row.form == Form::kNative) {
    const auto* from = reinterpret_cast<const float*>(data) + i;
    for (size_t k = 0; k < kVectors; ++k) {
      const size_t before = HWY_MIN(k * lanes, n);
      v[k] = hn::MaskedLoad(hn::FirstN(d, HWY_MIN(lanes, n - before)), d, from + before);
    }
    return;
  }
#endif
  HWY_ALIGN std::byte pad[kReduceLanes * sizeof(float)];
  if (!kWhole && row.mask != 0) {
    std::memset(pad, 0, sizeof(pad));
    std::memcpy(pad, data + i * form_bytes(row.form), n * form_bytes(row.form));
    data = pad;
    i = 0;
  }
  for (size_t k = 0; k < kVectors; ++k)
    v[k] = load_form(d, data, (i + k * lanes) & row.mask, row.form);
}

// The term that is folded, of kArgs values, and the value inside it that others may read.
struct TermPlain {
  static constexpr size_t kArgs = 1;
  HWY_INLINE VF inner(DF, const VF (&x)[1]) const { return x[0]; }
  HWY_INLINE VF term(VF inner, const VF (&)[1]) const { return inner; }
};
struct TermProduct {
  static constexpr size_t kArgs = 2;
  HWY_INLINE VF inner(DF, const VF (&x)[2]) const { return hn::Mul(x[0], x[1]); }
  HWY_INLINE VF term(VF inner, const VF (&)[2]) const { return inner; }
};
struct TermSquare {
  static constexpr size_t kArgs = 1;
  HWY_INLINE VF inner(DF, const VF (&x)[1]) const { return x[0]; }
  HWY_INLINE VF term(VF inner, const VF (&)[1]) const { return hn::Mul(inner, inner); }
};
struct TermProductByThird {
  static constexpr size_t kArgs = 3;
  HWY_INLINE VF inner(DF, const VF (&x)[3]) const { return hn::Mul(x[0], x[1]); }
  HWY_INLINE VF term(VF inner, const VF (&x)[3]) const { return hn::Mul(inner, x[2]); }
};
struct TermSquareOfDifference {
  static constexpr size_t kArgs = 2;
  HWY_INLINE VF inner(DF, const VF (&x)[2]) const { return hn::Sub(x[0], x[1]); }
  HWY_INLINE VF term(VF inner, const VF (&)[2]) const { return hn::Mul(inner, inner); }
};
struct TermExp {  // fold_exps(), where it can be
  static constexpr size_t kArgs = 2;
  HWY_INLINE VF inner(DF d, const VF (&x)[2]) const { return exp_f32(d, hn::Sub(x[0], x[1])); }
  HWY_INLINE VF term(VF inner, const VF (&)[2]) const { return inner; }
};

#if HWY_TARGET == HWY_AVX3
// Folds kTick columns from `at` into the lanes of a row of floats: an exponential is a long chain,
// so several go side by side.
template <class Op, bool kKeeps>
HWY_INLINE void fold_exps(DF d, const Row (&row)[2], float* keep, size_t at, VF (&acc)[1]) {
  constexpr size_t kAtOnce = kTick / hn::MaxLanes(d);
  const Op op;
  VF x[kAtOnce], less[kAtOnce];
  const auto load = [&](const Row& from, VF(&v)[kAtOnce]) HWY_ATTR {
#pragma GCC unroll 4
    for (size_t k = 0; k < kAtOnce; ++k)
      v[k] = hn::LoadU(
          d, reinterpret_cast<const float*>(from.data) + ((at + k * hn::MaxLanes(d)) & from.mask));
  };
  load(row[0], x);
  load(row[1], less);
#pragma GCC unroll 4
  for (size_t k = 0; k < kAtOnce; ++k) x[k] = at_most(d, 89.0f, hn::Sub(x[k], less[k]));
  exps_from_f32(d, kLeastExp, x);
#pragma GCC unroll 4
  for (size_t k = 0; k < kAtOnce; ++k) {
    if constexpr (kKeeps) hn::StoreU(x[k], d, keep + at + k * hn::MaxLanes(d));
    acc[0] = op(acc[0], x[k]);
  }
}
#endif

// Folds columns [0, n) of R rows at once into their lanes: the chains of R rows hide each other.
// kKeeps: writes the inner values of a single row at `keep`.
template <class Op, class Term, int R, bool kPlain, bool kKeeps>
HWY_INLINE void fold_rows(DF d, const Row (&rows)[R][Term::kArgs], float* keep, size_t n,
                          Prefetcher* prefetcher, VF (&acc)[R][kVectors]) {
  const Op op;
  const Term term;
  const size_t lanes = hn::Lanes(d), step = kReduceLanes;
  constexpr size_t kTickCols = kTick / R;
  const auto fold = [&](size_t at, size_t some, auto is_whole) HWY_ATTR {
    constexpr bool kWhole = decltype(is_whole)::value;
    for (int q = 0; q < R; ++q) {
      VF v[Term::kArgs][kVectors];
      for (size_t a = 0; a < Term::kArgs; ++a)
        load_lanes<kWhole, kPlain>(d, rows[q][a], at, some, v[a]);
      for (size_t k = 0; k < kVectors; ++k) {
        VF x[Term::kArgs];
        for (size_t a = 0; a < Term::kArgs; ++a) x[a] = v[a][k];
        const VF inner = term.inner(d, x);
        const VF folded = op(acc[q][k], term.term(inner, x));
        [[maybe_unused]] float* to = keep + at + k * lanes;
        if constexpr (kWhole) {
          if constexpr (kKeeps) hn::StoreU(inner, d, to);
          acc[q][k] = folded;
        } else if (k * lanes < some) {
          const size_t left = HWY_MIN(lanes, some - k * lanes);
          if constexpr (kKeeps) {
            HWY_ALIGN float pad[kMaxLanes];
            hn::Store(inner, d, pad);
            std::memcpy(to, pad, left * sizeof(float));
          }
          acc[q][k] = hn::IfThenElse(hn::FirstN(d, left), folded, acc[q][k]);
        }
      }
    }
  };
  size_t i = 0;
  for (; i + kTickCols <= n; i += kTickCols) {
#if HWY_TARGET == HWY_AVX3
    if constexpr (std::is_same_v<Term, TermExp> && kPlain && R == 1) {
      fold_exps<Op, kKeeps>(d, rows[0], keep, i, acc[0]);
      if (prefetcher != nullptr) prefetcher->tick();
      continue;
    }
#endif
    if constexpr (kKeeps || std::is_same_v<Term, TermExp>) {
      for (size_t c = 0; c < kTickCols; c += step) fold(i + c, step, std::true_type());
    } else {  // what only reads is as fast as memory, and that likes one load after another
#pragma GCC unroll 1
      for (size_t c = 0; c < kTickCols; c += step) fold(i + c, step, std::true_type());
    }
    if (prefetcher != nullptr) prefetcher->tick();
  }
  for (; i + step <= n; i += step) fold(i, step, std::true_type());
  if (i < n) fold(i, n - i, std::false_type());
}

// The lanes of a maximum or minimum by the machine's own, several chains at once: right but where a
// lane meets a NaN or comes out 0, of either sign. Then false.
template <class Op>
HWY_INLINE bool fold_extreme(DF d, const Row& row, size_t n, Prefetcher* prefetcher,
                             VF (&acc)[kVectors]) {
  const Op op;
  constexpr size_t kChains = 4;
  const size_t lanes = hn::Lanes(d), step = kReduceLanes;
  const VF start = hn::Set(d, Op::kIdentity);
  VF chains[kChains][kVectors], v[kVectors];
  for (size_t q = 0; q < kChains; ++q)
    for (size_t k = 0; k < kVectors; ++k) chains[q][k] = start;
  MaskF odd = hn::IsNaN(start);
  size_t i = 0;
  static_assert(kChains * kReduceLanes == kTick);
  for (; i + kChains * step <= n; i += kChains * step) {
    for (size_t q = 0; q < kChains; q += 2) {
      VF w[kVectors];
      load_lanes<true, false>(d, row, i + q * step, step, v);
      load_lanes<true, false>(d, row, i + (q + 1) * step, step, w);
      for (size_t k = 0; k < kVectors; ++k) {
        odd = hn::Or(odd, either_is_nan(v[k], w[k]));
        chains[q][k] = Op::plain(v[k], chains[q][k]);
        chains[q + 1][k] = Op::plain(w[k], chains[q + 1][k]);
      }
    }
    if (prefetcher != nullptr) prefetcher->tick();
  }
  for (; i < n; i += step) {
    if (i + step <= n)
      load_lanes<true, false>(d, row, i, step, v);
    else
      load_lanes<false, false>(d, row, i, n - i, v);
    for (size_t k = 0; k < kVectors; ++k) {
      const size_t before = i + k * lanes;
      if (before >= n) break;
      const auto some = hn::FirstN(d, HWY_MIN(lanes, n - before));
      const VF x = hn::IfThenElse(some, v[k], start);
      odd = hn::Or(odd, hn::IsNaN(x));
      chains[0][k] = Op::plain(x, chains[0][k]);
    }
  }
  for (size_t k = 0; k < kVectors; ++k) {
    for (size_t q = 1; q < kChains; ++q) chains[0][k] = Op::plain(chains[q][k], chains[0][k]);
    odd = hn::Or(odd, hn::Eq(chains[0][k], hn::Zero(d)));
  }
  if (!hn::AllFalse(d, odd)) return false;
  for (size_t k = 0; k < kVectors; ++k) acc[k] = op(acc[k], chains[0][k]);
  return true;
}

// Lane l with l + n / 2, until one is left.
template <class Op, size_t n>
HWY_INLINE void fold_halves(float* x) {
  if constexpr (n > 1) {
    constexpr size_t kHalf = n / 2;
    const hn::CappedTag<float, kHalf> d;
    for (size_t i = 0; i < kHalf; i += hn::Lanes(d))
      hn::Store(Op()(hn::Load(d, x + i), hn::Load(d, x + kHalf + i)), d, x + i);
    fold_halves<Op, kHalf>(x);
  }
}
template <class Op>
HWY_INLINE float fold_lanes(DF d, const VF (&acc)[kVectors]) {
  HWY_ALIGN float x[kReduceLanes];
  for (size_t k = 0; k < kVectors; ++k) hn::Store(acc[k], d, x + k * hn::Lanes(d));
  fold_halves<Op, kReduceLanes>(x);
  return x[0];
}

#if HWY_TARGET != HWY_SCALAR
// A vector folded by halves until four lanes are left.
template <class Op, class D, class V>
HWY_INLINE auto fold_to_four(D d, V v) {
  if constexpr (hn::MaxLanes(D()) <= 4) {
    return v;
  } else {
    const hn::Half<D> dh;
    return fold_to_four<Op>(dh, Op()(hn::LowerHalf(dh, v), hn::UpperHalf(dh, v)));
  }
}
// The same as fold_lanes() of four rows at once.
template <class Op>
HWY_INLINE void fold_lanes_of_four(DF d, const VF (&acc)[4][kVectors], float* x) {
  const Op op;
  const hn::CappedTag<float, 4> d4;
  const auto four_of = [&](const VF(&row)[kVectors]) HWY_ATTR {
    constexpr size_t kHalf = kVectors / 2;
    VF v[kVectors];
    for (size_t k = 0; k < kVectors; ++k) v[k] = row[k];
    for (size_t half = kHalf; half > 0; half /= 2)
      for (size_t k = 0; k < half; ++k) v[k] = op(v[k], v[k + half]);
    return fold_to_four<Op>(d, v[0]);
  };
  const auto r0 = four_of(acc[0]), r1 = four_of(acc[1]);
  const auto r2 = four_of(acc[2]), r3 = four_of(acc[3]);
  // Lane l of all rows in one vector each.
  const auto low02 = hn::InterleaveLower(d4, r0, r2), low13 = hn::InterleaveLower(d4, r1, r3);
  const auto high02 = hn::InterleaveUpper(d4, r0, r2), high13 = hn::InterleaveUpper(d4, r1, r3);
  const auto even = op(hn::InterleaveLower(d4, low02, low13),
                       hn::InterleaveLower(d4, high02, high13));
  const auto odd = op(hn::InterleaveUpper(d4, low02, low13),
                      hn::InterleaveUpper(d4, high02, high13));
  hn::StoreU(op(even, odd), d4, x);
}
#else
template <class Op>
HWY_INLINE void fold_lanes_of_four(DF d, const VF (&acc)[4][kVectors], float* x) {
  for (int q = 0; q < 4; ++q) x[q] = fold_lanes<Op>(d, acc[q]);
}
#endif

// The state of row r at the first of a block's calls, and its update after each.
template <class Op>
HWY_INLINE void enter_row(DF d, const ReduceRowsCall& c, int64_t r, const std::byte* lanes,
                          VF (&acc)[kVectors]) {
  const auto* state = reinterpret_cast<const float*>(lanes) + r * kReduceLanes;
  const bool begins = c.first_col % kReduceBlock == 0;
  for (size_t k = 0; k < kVectors; ++k)
    acc[k] = begins ? hn::Set(d, Op::kIdentity) : hn::LoadU(d, state + k * hn::Lanes(d));
}
HWY_INLINE bool ends_block(const ReduceRowsCall& c) {
  const int64_t end = c.first_col + c.cols;
  return end % kReduceBlock == 0 || end == c.total_cols;
}
// Adds the folded lanes x of a block to a row's result.
template <class Op>
HWY_INLINE void end_block(const ReduceRowsCall& c, float x, float* out) {
  const int64_t end = c.first_col + c.cols;
  *out = end <= kReduceBlock ? x : Op::fold(*out, x);
  if (end == c.total_cols && c.round == Form::kBF16) *out = bf16_to_f32(f32_to_bf16(*out));
  if (end == c.total_cols && c.round == Form::kF16) *out = f16_to_f32(f32_to_f16(*out));
}
template <class Op>
HWY_INLINE void leave_row(DF d, const ReduceRowsCall& c, int64_t r, const VF (&acc)[kVectors],
                          std::byte* lanes, std::byte* results) {
  if (!ends_block(c)) {
    auto* state = reinterpret_cast<float*>(lanes) + r * kReduceLanes;
    for (size_t k = 0; k < kVectors; ++k) hn::StoreU(acc[k], d, state + k * hn::Lanes(d));
    return;
  }
  end_block<Op>(c, fold_lanes<Op>(d, acc), reinterpret_cast<float*>(results) + r);
}

template <class Op, class Term, int R>
HWY_INLINE void reduce_some_rows(DF d, const ReduceRowsCall& c, int64_t r) {
  HWY_ALIGN float splats[R][Term::kArgs][kTick];
  Row rows[R][Term::kArgs];
  VF acc[R][kVectors];
  bool plain = true;
  for (int q = 0; q < R; ++q) {
    for (size_t a = 0; a < Term::kArgs; ++a) {
      rows[q][a] = begin_row(d, c.args[a], r + q, splats[q][a]);
      plain = plain && rows[q][a].form == Form::kNative;
    }
    enter_row<Op>(d, c, r + q, c.lanes, acc[q]);
  }
  const auto n = static_cast<size_t>(c.cols);
  auto* keep = reinterpret_cast<float*>(const_cast<std::byte*>(c.keep.data));
  if (keep != nullptr) keep += r * c.keep.row_step / static_cast<int64_t>(sizeof(float));
  bool done = false;
  if constexpr (Op::kExtreme && R == 1) done = fold_extreme<Op>(d, rows[0][0], n, c.ahead, acc[0]);
  const auto fold = [&](auto is_plain, auto keeps) HWY_ATTR {
    fold_rows<Op, Term, R, decltype(is_plain)::value, decltype(keeps)::value>(d, rows, keep, n,
                                                                             c.ahead, acc);
  };
  using Yes = std::true_type;
  using No = std::false_type;
  if constexpr (R == 1 && Term::kArgs > 1)
    if (keep != nullptr) {
      plain ? fold(Yes(), Yes()) : fold(No(), Yes());
      done = true;
    }
  if (!done) plain ? fold(Yes(), No()) : fold(No(), No());
  if constexpr (R == 4)
    if (ends_block(c)) {
      float x[4];
      fold_lanes_of_four<Op>(d, acc, x);
      for (int q = 0; q < R; ++q) end_block<Op>(c, x[q], reinterpret_cast<float*>(c.out) + r + q);
      return;
    }
  for (int q = 0; q < R; ++q) leave_row<Op>(d, c, r + q, acc[q], c.lanes, c.out);
}

template <class Op, class Term>
void reduce_rows_f32(const ReduceRowsCall& c) {
  const DF d;
  int64_t r = 0;
  // An exponential hides the additions by itself, long rows come faster one after another, and
  // values that are kept are those of one row.
  constexpr int64_t kShort = 512;
  const bool together =
      c.cols < (Op::kExtreme ? 4 * kReduceLanes : kShort) && c.keep.data == nullptr;
  if constexpr (!std::is_same_v<Term, TermExp>)
    for (; together && r + 4 <= c.rows; r += 4) reduce_some_rows<Op, Term, 4>(d, c, r);
  for (; r < c.rows; ++r) reduce_some_rows<Op, Term, 1>(d, c, r);
}

// A reduction of squares reads one operand.
void reduce_products_f32(const ReduceRowsCall& c) {
  const KernelArg &a = c.args[0], &b = c.args[1];
  const bool squares = a.data == b.data && a.row_step == b.row_step && a.form == b.form &&
                       !a.splat && !b.splat && c.keep.data == nullptr;
  if (squares) return reduce_rows_f32<FoldSum, TermSquare>(c);
  reduce_rows_f32<FoldSum, TermProduct>(c);
}

// Sums of (a b) c and of c c, side by side. kKeeps: a b goes to `keep`.
template <bool kKeeps>
HWY_INLINE void sum_with_squares(DF d, const float* a, const float* b, const float* c, float* keep,
                                 size_t n, Prefetcher* prefetcher, VF (&sum)[kVectors],
                                 VF (&squares)[kVectors]) {
  const size_t lanes = hn::Lanes(d);
  const auto fold = [&](size_t at) HWY_ATTR {
    for (size_t k = 0; k < kVectors; ++k, at += lanes) {
      const VF x = hn::LoadU(d, c + at),
               inner = hn::Mul(hn::LoadU(d, a + at), hn::LoadU(d, b + at));
      if constexpr (kKeeps) hn::StoreU(inner, d, keep + at);
      squares[k] = hn::Add(squares[k], hn::Mul(x, x));
      sum[k] = hn::Add(sum[k], hn::Mul(inner, x));
    }
  };
  size_t i = 0;
  for (; i + kTick <= n; i += kTick) {
    for (size_t q = 0; q < kTick; q += kReduceLanes) fold(i + q);
    if (prefetcher != nullptr) prefetcher->tick();
  }
  for (; i < n; i += kReduceLanes) fold(i);
}
void products_by_third_and_squares(const ReduceRowsCall& c) {
  const DF d;
  bool plain = c.cols % kReduceLanes == 0;
  for (const KernelArg& arg : c.args) plain = plain && !arg.splat && arg.form == Form::kNative;
  if (!plain) {
    ReduceRowsCall squares = c;
    squares.args[0] = squares.args[1] = c.args[2];
    squares.keep = {};
    squares.lanes = c.square_lanes;
    squares.out = c.square_out;
    squares.ahead = nullptr;
    reduce_products_f32(squares);
    return reduce_rows_f32<FoldSum, TermProductByThird>(c);
  }
  const auto n = static_cast<size_t>(c.cols);
  for (int64_t r = 0; r < c.rows; ++r) {
    VF sum[kVectors], squares[kVectors];
    enter_row<FoldSum>(d, c, r, c.lanes, sum);
    enter_row<FoldSum>(d, c, r, c.square_lanes, squares);
    const float *x = floats(c.args[0], r), *y = floats(c.args[1], r), *z = floats(c.args[2], r);
    if (c.keep.data != nullptr)
      sum_with_squares<true>(d, x, y, z, floats(c.keep, r), n, c.ahead, sum, squares);
    else
      sum_with_squares<false>(d, x, y, z, nullptr, n, c.ahead, sum, squares);
    leave_row<FoldSum>(d, c, r, sum, c.lanes, c.out);
    leave_row<FoldSum>(d, c, r, squares, c.square_lanes, c.square_out);
  }
}

template <class Op>
void fill_identity_f32(std::byte* acc, int64_t n) {
  for (int64_t i = 0; i < n; ++i) reinterpret_cast<float*>(acc)[i] = Op::kIdentity;
}
template <class Op>
ReduceKernels kernels_f32() {
  ReduceKernels kernels;
  kernels.rows = reduce_rows_f32<Op, TermPlain>;
  kernels.columns = reduce_columns_f32<Op>;
  kernels.fill_identity = fill_identity_f32<Op>;
  return kernels;
}
ReduceKernels find_reduce(OpKind op) {
  if (op == OpKind::kReduceSum) {
    ReduceKernels sum = kernels_f32<FoldSum>();
    sum.products = reduce_products_f32;
    sum.squares_of_differences = reduce_rows_f32<FoldSum, TermSquareOfDifference>;
    sum.products_by_third = reduce_rows_f32<FoldSum, TermProductByThird>;
    sum.and_squares = products_by_third_and_squares;
    sum.exps = reduce_rows_f32<FoldSum, TermExp>;
    sum.column_products = sum_column_products_f32;
    sum.norm_gradient = norm_gradient;
    return sum;
  }
  if (op == OpKind::kReduceProd) return kernels_f32<FoldProd>();
  if (op == OpKind::kReduceMax) return kernels_f32<FoldMax>();
  if (op == OpKind::kReduceMin) return kernels_f32<FoldMin>();
  return {};
}

}  // namespace stow::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stow::cpu {
HWY_EXPORT(find_reduce);
ReduceKernels f32_reduce_kernels(OpKind op) {
  return HWY_DYNAMIC_DISPATCH(find_reduce)(op);
}

}  // namespace stow::cpu
#endif  // HWY_ONCE
