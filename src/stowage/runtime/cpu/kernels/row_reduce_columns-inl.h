// Column reductions of f32 as vector code, and the folds of both row and column reductions.
// Included once for each target. The order of every sum is that of ir/row_program.h.
// Not row reductions; row_kernels_reduce.cpp has those.
// NOLINTNEXTLINE
#if defined(STOW_ROW_REDUCE_COLUMNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STOW_ROW_REDUCE_COLUMNS_INL_H_
#undef STOW_ROW_REDUCE_COLUMNS_INL_H_
#else
#define STOW_ROW_REDUCE_COLUMNS_INL_H_
#endif

#include <limits>

#include "stowage/runtime/cpu/kernels/row_kernels_f32-inl.h"
#include "stowage/runtime/cpu/kernels/row_scalar.h"

HWY_BEFORE_NAMESPACE();
namespace stow::cpu::HWY_NAMESPACE {

// Number of vectors that hold kReduceLanes lanes.
constexpr size_t kVectors =
    kMaxLanes >= kReduceLanes ? 1 : static_cast<size_t>(kReduceLanes) / kMaxLanes;
static_assert(kMaxLanes <= kReduceLanes);

// Folds of reductions: operator() folds vectors and fold() scalars. If kExtreme, plain() is the
// machine's own maximum or minimum, which may differ for NaNs and zeros.
struct FoldSum {
  static constexpr bool kExtreme = false;
  static constexpr float kIdentity = 0;
  template <class V>
  HWY_INLINE V operator()(V a, V b) const { return hn::Add(a, b); }
  static float fold(float a, float b) { return a + b; }
};
struct FoldProd {
  static constexpr bool kExtreme = false;
  static constexpr float kIdentity = 1;
  template <class V>
  HWY_INLINE V operator()(V a, V b) const { return hn::Mul(a, b); }
  static float fold(float a, float b) { return a * b; }
};
struct FoldMax {
  static constexpr bool kExtreme = true;
  static HWY_INLINE VF plain(VF a, VF b) { return hn::Max(a, b); }
  static constexpr float kIdentity = -std::numeric_limits<float>::infinity();
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    const V larger = hn::IfThenElse(hn::Gt(a, b), a, b);
    const V y = hn::IfThenElse(hn::Eq(a, b), hn::And(a, b), larger);
    return hn::IfThenElse(hn::IsNaN(a), a, y);
  }
  static float fold(float a, float b) { return scalar::Binary<OpKind::kMax, float>::apply(a, b); }
};
struct FoldMin {
  static constexpr bool kExtreme = true;
  static HWY_INLINE VF plain(VF a, VF b) { return hn::Min(a, b); }
  static constexpr float kIdentity = std::numeric_limits<float>::infinity();
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    const V smaller = hn::IfThenElse(hn::Lt(a, b), a, b);
    const V y = hn::IfThenElse(hn::Eq(a, b), hn::Or(a, b), smaller);
    return hn::IfThenElse(hn::IsNaN(a), a, y);
  }
  static float fold(float a, float b) { return scalar::Binary<OpKind::kMin, float>::apply(a, b); }
};

// Returns row r of an argument that is floats in memory.
HWY_INLINE float* floats(const KernelArg& arg, int64_t r) {
  return reinterpret_cast<float*>(const_cast<std::byte*>(arg.data) + r * arg.row_step);
}

// Returns the lanes in which a or b is a NaN.
HWY_INLINE MaskF either_is_nan(VF a, VF b) {
#if HWY_TARGET == HWY_AVX3
  return MaskF{_mm512_cmp_ps_mask(a.raw, b.raw, _CMP_UNORD_Q)};
#elif HWY_TARGET == HWY_AVX2
  return MaskF{_mm256_cmp_ps(a.raw, b.raw, _CMP_UNORD_Q)};
#else
  return hn::Or(hn::IsNaN(a), hn::IsNaN(b));
#endif
}

// Folds all rows of N vectors of columns from column i on; if kPart, only lanes `some` of the last
// vector. The latencies of the N chains overlap. A maximum or minimum is first computed by
// Op::plain(), whose result is right unless a column has a NaN or the result is a zero; then it is
// computed again.
template <class Op, size_t N, bool kPart>
HWY_INLINE void fold_columns(DF d, const ReduceColumnsCall& c, size_t i, MaskF some) {
  const Op op;
  const size_t lanes = hn::Lanes(d);
  auto* acc = reinterpret_cast<float*>(c.acc) + i;
  const auto load = [&](const float* from, VF(&v)[N]) HWY_ATTR {
    for (size_t k = 0; k < N; ++k)
      v[k] = kPart && k + 1 == N ? hn::MaskedLoad(some, d, from + k * lanes)
                                 : hn::LoadU(d, from + k * lanes);
  };
  const auto store = [&](const VF(&v)[N]) HWY_ATTR {
    for (size_t k = 0; k < N; ++k) {
      if (kPart && k + 1 == N)
        hn::BlendedStore(v[k], some, d, acc + k * lanes);
      else
        hn::StoreU(v[k], d, acc + k * lanes);
    }
  };
  const std::byte* const begin = c.arg.data + i * sizeof(float);
  VF folded[N], v[N];
  if constexpr (Op::kExtreme) {
    load(acc, folded);
    MaskF odd = hn::IsNaN(hn::Zero(d));
    const std::byte* data = begin;
    for (int64_t r = 0; r < c.rows; ++r, data += c.arg.row_step) {
      load(reinterpret_cast<const float*>(data), v);
      for (size_t k = 0; k < N; ++k) {
        odd = hn::Or(odd, either_is_nan(v[k], folded[k]));
        folded[k] = Op::plain(v[k], folded[k]);
      }
    }
    for (size_t k = 0; k < N; ++k) {
      const MaskF zero = hn::Eq(folded[k], hn::Zero(d));
      odd = hn::Or(odd, kPart && k + 1 == N ? hn::And(zero, some) : zero);
    }
    if (hn::AllFalse(d, odd)) return store(folded);
  }
  load(acc, folded);
  const std::byte* data = begin;
  for (int64_t r = 0; r < c.rows; ++r, data += c.arg.row_step) {
    load(reinterpret_cast<const float*>(data), v);
    for (size_t k = 0; k < N; ++k) folded[k] = op(folded[k], v[k]);
  }
  store(folded);
}

// ReduceKernels::columns for the fold Op: acc[c] = Op(acc[c], arg[r, c]) for r in order.
template <class Op>
void reduce_columns_f32(const ReduceColumnsCall& c) {
  const DF d;
  const Op op;
  const size_t lanes = hn::Lanes(d), n = static_cast<size_t>(c.cols);
  auto* acc = reinterpret_cast<float*>(c.acc);
  if (c.arg.splat) {  // one value a row: rare, and every column alike
    for (int64_t r = 0; r < c.rows; ++r) {
      HWY_ALIGN float splat[kTick];
      begin_row(d, c.arg, r, splat);
      for (size_t i = 0; i < n; ++i) acc[i] = Op::fold(acc[i], splat[0]);
    }
    return;
  }
  size_t i = 0;
#if HWY_TARGET <= HWY_AVX2 && HWY_ARCH_X86
  // Masked loads touch no memory outside of the mask on these machines.
  if (c.arg.form == Form::kNative) {
    const MaskF all = hn::FirstN(d, lanes);
    for (; i + 4 * lanes <= n; i += 4 * lanes) {
      fold_columns<Op, 4, false>(d, c, i, all);
      for (int k = 0; k < 2 && c.ahead != nullptr; ++k) c.ahead->tick();
    }
    const size_t left = n - i;
    if (left == 0) return;
    const MaskF some = hn::FirstN(d, left % lanes == 0 ? lanes : left % lanes);
    const size_t vectors = (left + lanes - 1) / lanes;
    if (vectors == 1) fold_columns<Op, 1, true>(d, c, i, some);
    if (vectors == 2) fold_columns<Op, 2, true>(d, c, i, some);
    if (vectors == 3) fold_columns<Op, 3, true>(d, c, i, some);
    if (vectors == 4) fold_columns<Op, 4, true>(d, c, i, some);
    if (vectors > 1 && c.ahead != nullptr) c.ahead->tick();
    return;
  }
#endif
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    VF a = hn::LoadU(d, acc + i), b = hn::LoadU(d, acc + i + lanes);
    const std::byte* data = c.arg.data;
    for (int64_t r = 0; r < c.rows; ++r, data += c.arg.row_step) {
      a = op(a, load_form(d, data, i, c.arg.form));
      b = op(b, load_form(d, data, i + lanes, c.arg.form));
    }
    hn::StoreU(a, d, acc + i);
    hn::StoreU(b, d, acc + i + lanes);
    if (c.ahead != nullptr) c.ahead->tick();
  }
  const size_t size = form_bytes(c.arg.form);
  HWY_ALIGN std::byte pad[kMaxLanes * sizeof(float)] = {};
  HWY_ALIGN float pad_acc[kMaxLanes] = {};
  for (; i < n; i += lanes) {
    const size_t some = HWY_MIN(lanes, n - i);
    std::memcpy(pad_acc, acc + i, some * sizeof(float));
    VF a = hn::Load(d, pad_acc);
    const std::byte* data = c.arg.data + i * size;
    for (int64_t r = 0; r < c.rows; ++r, data += c.arg.row_step) {
      std::memcpy(pad, data, some * size);
      a = op(a, load_form(d, pad, 0, c.arg.form));
    }
    hn::Store(a, d, pad_acc);
    std::memcpy(acc + i, pad_acc, some * sizeof(float));
  }
}

// Adds the products of the arg and the factors in rows [r, r + R) to the accumulators. Factors may
// be splats. kPlain: all but splats are native floats. There are kTerms - 1 factors.
template <int kTerms, int R, bool kPlain>
HWY_INLINE void sum_products_of_rows(DF d, const ReduceColumnsCall& c, int64_t r) {
  const size_t lanes = hn::Lanes(d), n = static_cast<size_t>(c.cols);
  auto* acc = reinterpret_cast<float*>(c.acc);
  HWY_ALIGN float splats[R][kTerms][kTick];
  Row rows[R][kTerms];
  for (int q = 0; q < R; ++q)
    for (int k = 0; k < kTerms; ++k)
      rows[q][k] = begin_row(d, k == 0 ? c.arg : c.factors[k - 1], r + q, splats[q][k], 2 * lanes);
  const auto product = [&](const Row(&terms)[kTerms], size_t i, size_t more) {
    VF v[kTerms];
    for (int k = 0; k < kTerms; ++k)
      v[k] = load_form(d, terms[k].data, (i & terms[k].mask) + more,
                       kPlain ? Form::kNative : terms[k].form);
    for (int k = 1; k < kTerms; ++k) v[0] = hn::Mul(v[0], v[k]);
    return v[0];
  };
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    VF x = hn::LoadU(d, acc + i), y = hn::LoadU(d, acc + i + lanes);
    for (int q = 0; q < R; ++q) {
      x = hn::Add(x, product(rows[q], i, 0));
      y = hn::Add(y, product(rows[q], i, lanes));
    }
    hn::StoreU(x, d, acc + i);
    hn::StoreU(y, d, acc + i + lanes);
    if (c.ahead != nullptr) c.ahead->tick();
  }
  for (; i < n; ++i)
    for (int q = 0; q < R; ++q) {
      float x = 1;
      for (int k = 0; k < kTerms; ++k) {
        KernelArg one = k == 0 ? c.arg : c.factors[k - 1];
        if (!one.splat) one.data += i * form_bytes(one.form);
        x = k == 0 ? splat_of(one, r + q) : x * splat_of(one, r + q);
      }
      acc[i] += x;
    }
}
// Adds the products of the arg and kTerms - 1 factors to the accumulators: acc[c] += arg[r, c] *
// factors[0][r, c] * … for r in order.
template <int kTerms>
void sum_products(const ReduceColumnsCall& c) {
  const DF d;
  bool plain = true;
  for (int k = 0; k < kTerms; ++k) {
    const KernelArg& t = k == 0 ? c.arg : c.factors[k - 1];
    plain = plain && (t.splat || t.form == Form::kNative);
  }
  int64_t r = 0;
  for (; plain && r + 2 <= c.rows; r += 2) sum_products_of_rows<kTerms, 2, true>(d, c, r);
  for (; plain && r < c.rows; ++r) sum_products_of_rows<kTerms, 1, true>(d, c, r);
  for (; r < c.rows; ++r) sum_products_of_rows<kTerms, 1, false>(d, c, r);
}
// ReduceKernels::column_products, for one or two factors.
void sum_column_products_f32(const ReduceColumnsCall& c) {
  c.n_factors == 2 ? sum_products<3>(c) : sum_products<2>(c);
}

// Computes norm_gradient() for rows [r, r + R), so that accumulators are read and written once for
// all.
template <int R>
HWY_INLINE void norm_gradient_of_rows(DF d, const ReduceColumnsCall& c, int64_t r) {
  const size_t lanes = hn::Lanes(d), n = static_cast<size_t>(c.cols);
  auto* acc = reinterpret_cast<float*>(c.acc);
  const float *x[R], *dy[R], *w[R];
  float* out[R];
  VF scale[R], slope[R];
  for (int q = 0; q < R; ++q) {
    x[q] = floats(c.arg, r + q);
    scale[q] = hn::Set(d, splat_of(c.factors[0], r + q));
    dy[q] = floats(c.factors[1], r + q);
    w[q] = floats(c.factors[2], r + q);
    slope[q] = hn::Set(d, splat_of(c.factors[3], r + q));
    out[q] = reinterpret_cast<float*>(c.out + (r + q) * c.out_row_step);
  }
  const auto gradient = [&](VF a, VF b, VF by, int q, VF& sum) HWY_ATTR {
    sum = hn::Add(sum, hn::Mul(hn::Mul(a, scale[q]), b));
    const VF p = hn::Mul(a, slope[q]);
    return hn::Add(hn::Mul(hn::Mul(b, by), scale[q]), hn::Add(p, p));
  };
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    for (size_t k = i; k < i + 2 * lanes; k += lanes) {
      VF sum = hn::LoadU(d, acc + k);
      for (int q = 0; q < R; ++q)
        hn::StoreU(gradient(hn::LoadU(d, x[q] + k), hn::LoadU(d, dy[q] + k),
                            hn::LoadU(d, w[q] + k), q, sum),
                   d, out[q] + k);
      hn::StoreU(sum, d, acc + k);
    }
    if (c.ahead != nullptr) c.ahead->tick();
  }
  for (; i < n; ++i) {
    VF sum = hn::Set(d, acc[i]);
    for (int q = 0; q < R; ++q)
      out[q][i] = hn::GetLane(
          gradient(hn::Set(d, x[q][i]), hn::Set(d, dy[q][i]), hn::Set(d, w[q][i]), q, sum));
    acc[i] = hn::GetLane(sum);
  }
}
// ReduceKernels::norm_gradient. With x = arg and the factors s, dy, w and k, of which s and k are
// one value a row: acc += (x s) dy, and out = (dy w) s + (p + p) with p = x k. Rows are added in
// order.
void norm_gradient(const ReduceColumnsCall& c) {
  const DF d;
  int64_t r = 0;
  for (; r + 2 <= c.rows; r += 2) norm_gradient_of_rows<2>(d, c, r);
  if (r < c.rows) norm_gradient_of_rows<1>(d, c, r);
}

}  // namespace stow::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // STOW_ROW_REDUCE_COLUMNS_INL_H_
