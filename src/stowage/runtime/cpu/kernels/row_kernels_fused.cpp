// Two or three steps of f32 in one pass over a tile, each rounding as if alone.
#include <type_traits>

#include "stowage/runtime/cpu/kernels/row_kernels.h"
#include "stowage/runtime/cpu/kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stowage/runtime/cpu/kernels/row_kernels_fused.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "stowage/runtime/cpu/kernels/row_kernels_f32-inl.h"
#include "stowage/runtime/cpu/kernels/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stow::cpu::HWY_NAMESPACE {

template <OpKind K>
HWY_INLINE VF binary(VF a, VF b) {
  if constexpr (K == OpKind::kAdd) return hn::Add(a, b);
  else if constexpr (K == OpKind::kSub) return hn::Sub(a, b);
  else if constexpr (K == OpKind::kMul) return hn::Mul(a, b);
  else return hn::Div(a, b);
}

// outer(inner(a, b), c), or outer(c, inner(a, b)).
template <OpKind Outer, OpKind Inner, bool kInnerFirst>
struct RowPair {
  HWY_INLINE VF operator()(DF, VF a, VF b, VF c) const {
    const VF t = binary<Inner>(a, b);
    return kInnerFirst ? binary<Outer>(t, c) : binary<Outer>(c, t);
  }
};
// outer(left(a, b), right(c, d)).
template <OpKind Outer, OpKind Left, OpKind Right>
struct RowTriple {
  HWY_INLINE VF operator()(DF, VF a, VF b, VF c, VF e) const {
    return binary<Outer>(binary<Left>(a, b), binary<Right>(c, e));
  }
};
// left(a, b) + (p + p), p = c e.
template <OpKind Left>
struct RowSquareGrad {
  HWY_INLINE VF operator()(DF, VF a, VF b, VF c, VF e) const {
    const VF p = hn::Mul(c, e);
    return hn::Add(binary<Left>(a, b), hn::Add(p, p));
  }
};
struct RowExpSub {
  HWY_INLINE VF operator()(DF d, VF a, VF b) const { return exp_f32(d, hn::Sub(a, b)); }
};
struct RowSqrtMul {
  HWY_INLINE VF operator()(DF, VF a, VF b) const { return hn::Sqrt(hn::Mul(a, b)); }
};

// The function of f32_hypot_kernel. Magnitudes have no -0, so the larger one needs no care for it.
struct RowHypot {
  HWY_INLINE VF operator()(DF d, VF a, VF b) const {
    const VF x = hn::Abs(a), y = hn::Abs(b), one = hn::Set(d, 1.0f), inf = hn::Inf(d);
    const auto x_is_nan = hn::IsNaN(x);
    const VF most = hn::IfThenElse(x_is_nan, x, hn::IfThenElse(hn::Gt(x, y), x, y));
    const VF least = hn::IfThenElse(x_is_nan, x, hn::IfThenElse(hn::Lt(x, y), x, y));
    const VF scale = hn::IfThenElse(hn::Eq(most, hn::Zero(d)), one, most);
    const VF ratio = hn::Div(least, scale);
    const VF finite = hn::Mul(most, hn::Sqrt(hn::Add(one, hn::Mul(ratio, ratio))));
    return hn::IfThenElse(hn::Or(hn::Eq(x, inf), hn::Eq(y, inf)), inf, finite);
  }
};
MapKernel find_hypot() {
  return map_f32<RowHypot, 2>;
}

template <OpKind Outer, OpKind Inner>
MapKernel pair_of(bool inner_first) {
  // Sums and products do not depend on the order of their operands.
  constexpr bool kCommutes = Outer == OpKind::kAdd || Outer == OpKind::kMul;
  if (inner_first || kCommutes) return map_f32<RowPair<Outer, Inner, true>, 3>;
  return map_f32<RowPair<Outer, Inner, kCommutes>, 3>;
}
template <OpKind Outer>
MapKernel pair_with(OpKind inner, bool inner_first) {
  if (inner == OpKind::kAdd) return pair_of<Outer, OpKind::kAdd>(inner_first);
  if (inner == OpKind::kSub) return pair_of<Outer, OpKind::kSub>(inner_first);
  if (inner == OpKind::kMul) return pair_of<Outer, OpKind::kMul>(inner_first);
  if (inner == OpKind::kDiv) return pair_of<Outer, OpKind::kDiv>(inner_first);
  return nullptr;
}
MapKernel find_pair(OpKind outer, OpKind inner, bool inner_first) {
  if (outer == OpKind::kAdd) return pair_with<OpKind::kAdd>(inner, inner_first);
  if (outer == OpKind::kSub) return pair_with<OpKind::kSub>(inner, inner_first);
  if (outer == OpKind::kMul) return pair_with<OpKind::kMul>(inner, inner_first);
  if (outer == OpKind::kDiv) return pair_with<OpKind::kDiv>(inner, inner_first);
  if (outer == OpKind::kExp && inner == OpKind::kSub) return map_f32<RowExpSub, 2>;
  if (outer == OpKind::kSqrt && inner == OpKind::kMul) return map_f32<RowSqrtMul, 2>;
  return nullptr;
}

template <OpKind Outer, OpKind Left>
MapKernel triple_with(OpKind right) {
  if (right == OpKind::kAdd) return map_f32<RowTriple<Outer, Left, OpKind::kAdd>, 4>;
  if (right == OpKind::kMul) return map_f32<RowTriple<Outer, Left, OpKind::kMul>, 4>;
  return nullptr;
}
template <OpKind Outer>
MapKernel triple_of(OpKind left, OpKind right) {
  if (left == OpKind::kAdd) return triple_with<Outer, OpKind::kAdd>(right);
  if (left == OpKind::kMul) return triple_with<Outer, OpKind::kMul>(right);
  return nullptr;
}
MapKernel find_triple(OpKind outer, OpKind left, OpKind right) {
  if (outer == OpKind::kAdd) return triple_of<OpKind::kAdd>(left, right);
  if (outer == OpKind::kSub) return triple_of<OpKind::kSub>(left, right);
  if (outer == OpKind::kMul) return triple_of<OpKind::kMul>(left, right);
  if (outer == OpKind::kDiv) return triple_of<OpKind::kDiv>(left, right);
  return nullptr;
}

MapKernel find_square_grad(OpKind left) {
  if (left == OpKind::kAdd) return map_f32<RowSquareGrad<OpKind::kAdd>, 4>;
  if (left == OpKind::kMul) return map_f32<RowSquareGrad<OpKind::kMul>, 4>;
  return nullptr;
}

// x + 0 or x - 0, which of -0 are not the same.
template <OpKind Outer>
HWY_INLINE VF with_zero(DF d, VF x) {
  return Outer == OpKind::kAdd ? hn::Add(x, hn::Zero(d)) : x;
}
template <OpKind Outer>
struct RowWithZero {
  HWY_INLINE VF operator()(DF d, VF a) const { return with_zero<Outer>(d, a); }
};
template <OpKind Outer>
struct RowProductWithZero {
  HWY_INLINE VF operator()(DF d, VF a, VF b) const { return with_zero<Outer>(d, hn::Mul(a, b)); }
};

template <OpKind Outer, bool kOfProduct>
void one_hot_add(const KernelCall& c) {
  const KernelArg &value = c.args[kOfProduct ? 2 : 1], &position = c.args[kOfProduct ? 3 : 2];
  const auto element = [](KernelArg arg, int64_t row, int64_t i) {
    if (!arg.splat) arg.data += i * static_cast<int64_t>(sizeof(float));
    return splat_of(arg, row);
  };
  for (int64_t r = 0; r < c.rows; ++r) {
    int32_t column;
    std::memcpy(&column, position.data + r * position.row_step, sizeof(column));
    const int64_t i = column - c.first_col;
    float hit = 0;
    const bool inside = 0 <= i && i < c.cols;
    if (inside) {  // before the row is written, as it may lie over what is read
      hit = element(c.args[0], r, i);
      if (kOfProduct) hit *= element(c.args[1], r, i);
      const float other = element(value, r, i);
      hit = Outer == OpKind::kAdd ? hit + other : hit - other;
    }
    KernelCall row = c;
    row.rows = 1;
    row.out += r * c.out_row_step;
    for (int k = 0; k < (kOfProduct ? 2 : 1); ++k) row.args[k].data += r * c.args[k].row_step;
    if constexpr (kOfProduct)
      map_f32<RowProductWithZero<Outer>, 2>(row);
    else
      map_f32<RowWithZero<Outer>, 1>(row);
    if (inside) reinterpret_cast<float*>(row.out)[i] = hit;
  }
}
MapKernel find_one_hot_add(OpKind outer, bool of_product) {
  if (outer == OpKind::kAdd)
    return of_product ? one_hot_add<OpKind::kAdd, true> : one_hot_add<OpKind::kAdd, false>;
  if (outer == OpKind::kSub)
    return of_product ? one_hot_add<OpKind::kSub, true> : one_hot_add<OpKind::kSub, false>;
  return nullptr;
}

}  // namespace stow::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stow::cpu {
HWY_EXPORT(find_pair);
HWY_EXPORT(find_triple);
HWY_EXPORT(find_square_grad);
HWY_EXPORT(find_hypot);
HWY_EXPORT(find_one_hot_add);
MapKernel f32_pair_kernel(OpKind outer, OpKind inner, bool inner_first) {
  return HWY_DYNAMIC_DISPATCH(find_pair)(outer, inner, inner_first);
}
MapKernel f32_triple_kernel(OpKind outer, OpKind left, OpKind right) {
  return HWY_DYNAMIC_DISPATCH(find_triple)(outer, left, right);
}
MapKernel f32_square_grad_kernel(OpKind left) {
  return HWY_DYNAMIC_DISPATCH(find_square_grad)(left);
}
MapKernel f32_hypot_kernel() {
  return HWY_DYNAMIC_DISPATCH(find_hypot)();
}
MapKernel f32_one_hot_add_kernel(OpKind outer, bool of_product) {
  return HWY_DYNAMIC_DISPATCH(find_one_hot_add)(outer, of_product);
}
}  // namespace stow::cpu
#endif  // HWY_ONCE
