// Vector functions of f32, continued: functions that use the C library for rare lanes or compute in
// f64.
// Not for f64. The conventions are those of simd_math-inl.h, after which a target includes this
// file. On a target of one lane sin, cos, erfc, erf_inv and pow are those of row_scalar.h, in f64.
// NOLINTNEXTLINE
#if defined(STOW_SIMD_MATH_SPECIAL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STOW_SIMD_MATH_SPECIAL_INL_H_
#undef STOW_SIMD_MATH_SPECIAL_INL_H_
#else
#define STOW_SIMD_MATH_SPECIAL_INL_H_
#endif

#include <hwy/highway.h>
#include "stowage/runtime/cpu/kernels/row_scalar.h"
#include "stowage/runtime/cpu/kernels/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stow::cpu::HWY_NAMESPACE {

/// Returns f(a, b) in the lanes of `mask`, called for each lane, and y in others. For lanes that
/// are too rare for vector code.
template <class D, class M, class V = hn::Vec<D>>
HWY_INLINE V patch_f32(D d, M mask, V y, V a, V b, float (*f)(float, float)) {
  if (HWY_LIKELY(hn::AllFalse(d, mask))) return y;
  HWY_ALIGN float in_a[hn::MaxLanes(d)], in_b[hn::MaxLanes(d)], out[hn::MaxLanes(d)];
  HWY_ALIGN uint32_t wanted[hn::MaxLanes(d)];
  const hn::RebindToUnsigned<D> du;
  hn::Store(a, d, in_a);
  hn::Store(b, d, in_b);
  hn::Store(y, d, out);
  hn::Store(hn::BitCast(du, hn::VecFromMask(d, mask)), du, wanted);
  for (size_t i = 0; i < hn::Lanes(d); ++i)
    if (wanted[i] != 0) out[i] = f(in_a[i], in_b[i]);
  return hn::Load(d, out);
}

// Ops of one operand and of two, computed for each lane in f64 and rounded to f32.
template <OpKind K>
float libm1(float x, float) {
  return static_cast<float>(scalar::Unary<K, double>::apply(x));
}
template <OpKind K>
float libm2(float x, float y) {
  return static_cast<float>(scalar::Binary<K, double>::apply(x, y));
}
template <OpKind K, class D, class V = hn::Vec<D>>
HWY_INLINE V libm1_f32(D d, V a) {
  return patch_f32(d, hn::Eq(hn::Zero(d), hn::Zero(d)), a, a, a, libm1<K>);
}
template <OpKind K, class D, class V = hn::Vec<D>>
HWY_INLINE V libm2_f32(D d, V a, V b) {
  return patch_f32(d, hn::Eq(hn::Zero(d), hn::Zero(d)), a, a, b, libm2<K>);
}

#if HWY_TARGET == HWY_SCALAR
#define STOW_FROM_LIBM1(name, kind)        \
  template <class D, class V = hn::Vec<D>> \
  HWY_INLINE V name(D d, V x) {            \
    return libm1_f32<OpKind::kind>(d, x);  \
  }
STOW_FROM_LIBM1(sin_f32, kSin)
STOW_FROM_LIBM1(cos_f32, kCos)
STOW_FROM_LIBM1(erf_inv_f32, kErfInv)
STOW_FROM_LIBM1(erfc_f32, kErfc)
#undef STOW_FROM_LIBM1
template <class D, class V = hn::Vec<D>>
HWY_INLINE V pow_f32(D d, V x, V y) {
  return libm2_f32<OpKind::kPow>(d, x, y);
}
#else
/// Returns the inverse of erf; ±infinity for ±1, NaN beyond.
/// Source: N. Juffa's erfinvf (public domain, Stack Overflow and NVIDIA forums).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V erf_inv_f32(D d, V a) {
  // log(1 - a^2) as the product (1 - a)(1 + a), whose factors are nearly exact near |a| = 1.
  const V one = hn::Set(d, 1.0f);
  const V t = log_f32(d, hn::NegMulAdd(a, a, one));
  V p = hn::Set(d, 3.03697567e-10f);
  p = hn::MulAdd(p, t, hn::Set(d, 2.93243101e-8f));
  p = hn::MulAdd(p, t, hn::Set(d, 1.22150334e-6f));
  p = hn::MulAdd(p, t, hn::Set(d, 2.84108955e-5f));
  p = hn::MulAdd(p, t, hn::Set(d, 3.93552968e-4f));
  p = hn::MulAdd(p, t, hn::Set(d, 3.02698812e-3f));
  p = hn::MulAdd(p, t, hn::Set(d, 4.83185798e-3f));
  p = hn::MulAdd(p, t, hn::Set(d, -2.64646143e-1f));
  p = hn::MulAdd(p, t, hn::Set(d, 8.40016484e-1f));
  V q = hn::Set(d, 5.43877832e-9f);
  q = hn::MulAdd(q, t, hn::Set(d, 1.43285448e-7f));
  q = hn::MulAdd(q, t, hn::Set(d, 1.22774793e-6f));
  q = hn::MulAdd(q, t, hn::Set(d, 1.12963626e-7f));
  q = hn::MulAdd(q, t, hn::Set(d, -5.61530760e-5f));
  q = hn::MulAdd(q, t, hn::Set(d, -1.47697632e-4f));
  q = hn::MulAdd(q, t, hn::Set(d, 2.31468678e-3f));
  q = hn::MulAdd(q, t, hn::Set(d, 1.15392581e-2f));
  q = hn::MulAdd(q, t, hn::Set(d, -2.32015476e-1f));
  q = hn::MulAdd(q, t, hn::Set(d, 8.86226892e-1f));
  const V y = hn::Mul(a, hn::IfThenElse(hn::Gt(hn::Abs(t), hn::Set(d, 6.125f)), p, q));
  const V inf = hn::CopySign(hn::Set(d, std::numeric_limits<float>::infinity()), a);
  return hn::IfThenElse(hn::Eq(hn::Abs(a), one), inf, y);
}

/// Returns 1 - erf(x), accurate also if tiny: e^-a^2 f(a) / (1 + 2 a) with a = |x|, subtracted from
/// 2 for negative x; near 0, 1 - erf(x).
/// Source: the form is that of Shepherd and Laframboise 1981, "Chebyshev approximation of
/// (1 + 2x) exp(x^2) erfc x"; the polynomial is a minimax fit of ours, within 1.6e-8 of
/// itself from 0.495 to 10.1.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V erfc_f32(D d, V x) {
  const V a = at_most(d, 10.2f, hn::Abs(x));  // e^-a^2 is 0 there
  const V one = hn::Set(d, 1.0f), two = hn::Set(d, 2.0f);
  const V q = hn::Div(hn::Sub(a, two), hn::Add(a, two));
  V p = hn::Set(d, -0x1.59fe56p-10f);
  p = hn::MulAdd(p, q, hn::Set(d, 0x1.f3068ep-11f));
  p = hn::MulAdd(p, q, hn::Set(d, 0x1.1cf4a6p-7f));
  p = hn::MulAdd(p, q, hn::Set(d, -0x1.048234p-7f));
  p = hn::MulAdd(p, q, hn::Set(d, -0x1.bc29b4p-5f));
  p = hn::MulAdd(p, q, hn::Set(d, 0x1.4ff5ccp-3f));
  p = hn::MulAdd(p, q, hn::Set(d, -0x1.5407acp-3f));
  p = hn::MulAdd(p, q, hn::Set(d, -0x1.7bf5b6p-4f));
  p = hn::MulAdd(p, q, hn::Set(d, 0x1.46e80ep+0f));
  // Rounding errors of a^2, of 1 + 2 a, and of the quotient.
  const V s = hn::Mul(a, a), s_rest = hn::MulSub(a, a, s);
  const V b = hn::MulAdd(two, a, one), b_rest = hn::MulSub(two, a, hn::Sub(b, one));
  const V inverse = hn::Div(one, b), f = hn::Mul(p, inverse);
  const V p_rest = hn::NegMulAdd(f, b_rest, hn::NegMulAdd(f, b, p));
  const V f_rest = hn::MulSub(p_rest, inverse, hn::Mul(f, s_rest));
  const V tail = hn::Mul(exp_of_negative_f32(d, hn::Neg(s)), hn::Add(f, f_rest));
  const V y = if_negative(d, x, hn::Sub(two, tail), tail);
  return hn::IfThenElse(hn::Lt(a, hn::Set(d, 0.5f)), hn::Sub(one, erf_near_0_f32(d, x, s)), y);
}

/// Returns x - k π/2 for the nearest integer k. |x| < 2^27.
/// Source: FreeBSD's __ieee754_rem_pio2f (π/2 in a part of 25 bits and a rest, in double).
template <class DD, class VD = hn::Vec<DD>>
HWY_INLINE VD reduce_pi_2(DD dd, VD x, VD& k) {
  const VD magic = hn::Set(dd, 6755399441055744.0);  // 1.5 * 2^52
  const VD shifted = hn::MulAdd(x, hn::Set(dd, 6.36619772367581382433e-01), magic);
  k = hn::Sub(shifted, magic);
  x = hn::NegMulAdd(k, hn::Set(dd, 1.57079631090164184570e+00), x);
  return hn::NegMulAdd(k, hn::Set(dd, 1.58932547735281966916e-08), x);
}

/// The parts of x = quarters π/2 + rest, |rest| <= π/4, for |x| < 2^27.
template <class D>
struct Quarters {
  hn::Vec<hn::RebindToSigned<D>> quarters;
  hn::Vec<D> rest;
};
template <class D, class V = hn::Vec<D>>
HWY_INLINE Quarters<D> reduce_quarters_f32(D d, V x) {
  const hn::Half<D> dh;
  const hn::Rebind<double, decltype(dh)> dd;
  const hn::Rebind<int32_t, decltype(dh)> dih;
  const hn::RebindToSigned<D> di;
  hn::Vec<decltype(dd)> k0, k1;
  const auto r0 = reduce_pi_2(dd, hn::PromoteTo(dd, hn::LowerHalf(dh, x)), k0);
  const auto r1 = reduce_pi_2(dd, hn::PromoteTo(dd, hn::UpperHalf(dh, x)), k1);
  return {hn::Combine(di, hn::DemoteTo(dih, k1), hn::DemoteTo(dih, k0)),
          hn::Combine(d, hn::DemoteTo(dh, r1), hn::DemoteTo(dh, r0))};
}

/// Returns sin(x + quarters π/2). Lanes with |x| >= 2^27, or NaN, call `rare`.
/// Source: the polynomials of Cephes' sinf and cosf (Moshier).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V sin_quarters_f32(D d, V x, int quarters, float (*rare)(float, float)) {
  const hn::RebindToSigned<D> di;
  const auto reduced = reduce_quarters_f32(d, x);
  const V r = reduced.rest;
  const auto n = hn::Add(reduced.quarters, hn::Set(di, quarters));
  const V s = hn::Mul(r, r), one = hn::Set(d, 1.0f);
  V p = hn::Set(d, -1.9515295891e-4f);
  p = hn::MulAdd(p, s, hn::Set(d, 8.3321608736e-3f));
  p = hn::MulAdd(p, s, hn::Set(d, -1.6666654611e-1f));
  p = hn::MulAdd(hn::Mul(p, s), r, r);
  V q = hn::Set(d, 2.443315711809948e-5f);
  q = hn::MulAdd(q, s, hn::Set(d, -1.388731625493765e-3f));
  q = hn::MulAdd(q, s, hn::Set(d, 4.166664568298827e-2f));
  q = hn::MulAdd(hn::Mul(s, s), q, hn::NegMulAdd(hn::Set(d, 0.5f), s, one));
  const auto odd = hn::MaskFromVec(hn::BitCast(d, hn::Neg(hn::And(n, hn::Set(di, 1)))));
  const V sign = hn::BitCast(d, hn::ShiftLeft<30>(hn::And(n, hn::Set(di, 2))));
  V y = hn::Xor(hn::IfThenElse(odd, q, p), sign);
  if (quarters == 0) y = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), x, y);
  return patch_f32(d, hn::Not(hn::Lt(hn::Abs(x), hn::Set(d, 134217728.0f))), y, x, x, rare);
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE V sin_f32(D d, V x) {
  return sin_quarters_f32(d, x, 0, libm1<OpKind::kSin>);
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE V cos_f32(D d, V x) {
  return sin_quarters_f32(d, x, 1, libm1<OpKind::kCos>);
}

/// Returns e^(y log x) for normal x > 0 and finite y, in f64: its error is far below half an ulp of
/// f32.
template <class DD, class VD = hn::Vec<DD>>
HWY_INLINE VD pow_core_f64(DD dd, VD x, VD y) {
  const hn::RebindToSigned<DD> di;
  const VD one = hn::Set(dd, 1.0);
  // x = 2^n m, m in [sqrt(1/2), sqrt(2)); log m = 2 artanh(s).
  const auto offset = hn::Set(di, 0x3fe6a09e667f3bcd);
  const auto bits = hn::Sub(hn::BitCast(di, x), offset);
  const auto m_bits = hn::Add(hn::And(bits, hn::Set(di, 0xfffffffffffff)), offset);
  const VD m = hn::BitCast(dd, m_bits);
  // The exponent as a double: bits >> 52 fits in 12 bits, so adding it to 1.5 * 2^52 is exact.
  // (x is a float, so bits >> 52 is bits' upper half >> 20.)
  const VD magic = hn::Set(dd, 6755399441055744.0);
  const auto biased = hn::BitCast(
      di, hn::ShiftRight<52>(hn::BitCast(hn::RebindToUnsigned<DD>(),
                                         hn::Add(bits, hn::Set(di, 0x4000000000000000)))));
  const VD n = hn::Sub(hn::Sub(hn::BitCast(dd, hn::Add(biased, hn::BitCast(di, magic))), magic),
                       hn::Set(dd, 1024.0));
  const VD s = hn::Div(hn::Sub(m, one), hn::Add(m, one)), z = hn::Mul(s, s);
  VD p = hn::Set(dd, 2.0 / 19);
  p = hn::MulAdd(p, z, hn::Set(dd, 2.0 / 17));
  p = hn::MulAdd(p, z, hn::Set(dd, 2.0 / 15));
  p = hn::MulAdd(p, z, hn::Set(dd, 2.0 / 13));
  p = hn::MulAdd(p, z, hn::Set(dd, 2.0 / 11));
  p = hn::MulAdd(p, z, hn::Set(dd, 2.0 / 9));
  p = hn::MulAdd(p, z, hn::Set(dd, 2.0 / 7));
  p = hn::MulAdd(p, z, hn::Set(dd, 2.0 / 5));
  p = hn::MulAdd(p, z, hn::Set(dd, 2.0 / 3));
  const VD log_m = hn::MulAdd(hn::Mul(p, z), s, hn::Add(s, s));
  const VD log_x = hn::MulAdd(n, hn::Set(dd, 0.693147180559945309417), log_m);
  VD t = hn::Mul(y, log_x);
  t = hn::Min(hn::Max(t, hn::Set(dd, -120.0)), hn::Set(dd, 120.0));
  const VD shifted = hn::MulAdd(t, hn::Set(dd, 1.44269504088896340736), magic);
  const VD k = hn::Sub(shifted, magic);
  const VD r = hn::NegMulAdd(k, hn::Set(dd, 0.693147180559945309417), t);
  VD e = hn::Set(dd, 1.0 / 39916800);
  e = hn::MulAdd(e, r, hn::Set(dd, 1.0 / 3628800));
  e = hn::MulAdd(e, r, hn::Set(dd, 1.0 / 362880));
  e = hn::MulAdd(e, r, hn::Set(dd, 1.0 / 40320));
  e = hn::MulAdd(e, r, hn::Set(dd, 1.0 / 5040));
  e = hn::MulAdd(e, r, hn::Set(dd, 1.0 / 720));
  e = hn::MulAdd(e, r, hn::Set(dd, 1.0 / 120));
  e = hn::MulAdd(e, r, hn::Set(dd, 1.0 / 24));
  e = hn::MulAdd(e, r, hn::Set(dd, 1.0 / 6));
  e = hn::MulAdd(e, r, hn::Set(dd, 0.5));
  e = hn::MulAdd(e, r, one);
  e = hn::MulAdd(e, r, one);
  const auto k_bits = hn::ShiftLeft<52>(hn::Sub(hn::BitCast(di, shifted), hn::BitCast(di, magic)));
  return hn::BitCast(dd, hn::Add(hn::BitCast(di, e), k_bits));
}

/// Returns 2^x.
/// Source: the polynomial of Cephes' exp2f (Moshier).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp2_f32(D d, V x0) {
  const hn::RebindToSigned<D> di;
  const V x = at_most(d, 130.0f, at_least(d, -152.0f, x0)), magic = magic_f32(d);
  const V shifted = hn::Add(x, magic), r = hn::Sub(x, hn::Sub(shifted, magic));
  V p = hn::Set(d, 1.535336188319500e-4f);
  p = hn::MulAdd(p, r, hn::Set(d, 1.339887440266574e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 9.618437357674640e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 5.550332471162809e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 2.402264791363012e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 6.931472028550421e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  // Scales by two factors, since 2^n may be too large or too small for a float.
  const auto n = hn::Sub(hn::BitCast(di, shifted), hn::BitCast(di, magic));
  const auto half = hn::ShiftRight<1>(n), bias = hn::Set(di, 127);
  const V first = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(half, bias)));
  const V second = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::Sub(n, half), bias)));
  return hn::Mul(hn::Mul(p, first), second);
}

/// Returns x^y with the special values of std::pow.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V pow_f32(D d, V x, V y) {
  const auto of_two = hn::Eq(x, hn::Set(d, 2.0f));
  if (hn::AllTrue(d, of_two)) return exp2_f32(d, y);
  const hn::Half<D> dh;
  const hn::Rebind<double, decltype(dh)> dd;
  const V a = hn::Abs(x), zero = hn::Zero(d);
  const auto r0 = pow_core_f64(dd, hn::PromoteTo(dd, hn::LowerHalf(dh, a)),
                               hn::PromoteTo(dd, hn::LowerHalf(dh, y)));
  const auto r1 = pow_core_f64(dd, hn::PromoteTo(dd, hn::UpperHalf(dh, a)),
                               hn::PromoteTo(dd, hn::UpperHalf(dh, y)));
  V r = hn::Combine(d, hn::DemoteTo(dh, r1), hn::DemoteTo(dh, r0));
  // For negative x, an even integer y gives |x|^y, an odd integer -|x|^y, any other y NaN.
  const auto negative = hn::Lt(x, zero);
  const auto integer = hn::Eq(hn::Round(y), y);
  const V half = hn::Mul(y, hn::Set(d, 0.5f));
  const auto even = hn::Eq(hn::Round(half), half);
  const V signed_r = hn::IfThenElse(even, r, hn::Neg(r));
  const V nan = hn::Set(d, std::numeric_limits<float>::quiet_NaN());
  r = hn::IfThenElse(negative, hn::IfThenElse(integer, signed_r, nan), r);
  const V big = hn::Set(d, std::numeric_limits<float>::max());
  const auto plain = hn::And(hn::And(hn::Gt(a, zero), hn::Le(a, big)), hn::Le(hn::Abs(y), big));
  r = patch_f32(d, hn::Not(plain), r, x, y, libm2<OpKind::kPow>);
  if (HWY_LIKELY(hn::AllFalse(d, of_two))) return r;
  return hn::IfThenElse(of_two, exp2_f32(d, y), r);  // a lane does not depend on its neighbours
}
#endif  // HWY_TARGET == HWY_SCALAR

}  // namespace stow::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // STOW_SIMD_MATH_SPECIAL_INL_H_
