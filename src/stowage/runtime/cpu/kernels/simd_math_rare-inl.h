// Vector functions of f32, continued: hyperbolic and inverse trigonometric functions, tan, cbrt and
// fmod, as accurate as those of simd_math-inl.h.
// Not for f64.
//
// Included once for each target, after hwy/highway.h; the conventions are those of simd_math-inl.h.
// On a target of one lane tan and fmod come from the C library.
// NOLINTNEXTLINE
#if defined(STOW_SIMD_MATH_RARE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STOW_SIMD_MATH_RARE_INL_H_
#undef STOW_SIMD_MATH_RARE_INL_H_
#else
#define STOW_SIMD_MATH_RARE_INL_H_
#endif

#include <hwy/highway.h>
#include "stowage/runtime/cpu/kernels/simd_math_special-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stow::cpu::HWY_NAMESPACE {

/// Returns e^a / 2 for an a above 88, also if e^a overflows.
/// Source: musl's __expo2f.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V half_exp_f32(D d, V a) {
  const V scale = hn::Set(d, 0x1p117f);
  return hn::Mul(hn::Mul(exp_f32(d, hn::Sub(a, hn::Set(d, 0x1.45c778p+7f))), scale), scale);
}

/// Source: musl's sinhf.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V sinh_f32(D d, V x) {
  const V a = hn::Abs(x), one = hn::Set(d, 1.0f);
  const V t = expm1_f32(d, at_most(d, 88.0f, a));
  const V q = hn::Div(t, hn::Add(t, one));
  const V near = hn::NegMulAdd(t, q, hn::Add(t, t));
  const V twice = hn::IfThenElse(hn::Lt(a, one), near, hn::Add(t, q));
  V y = hn::Mul(hn::Set(d, 0.5f), twice);
  const auto large = hn::Gt(a, hn::Set(d, 88.0f));
  if (HWY_UNLIKELY(!hn::AllFalse(d, large))) y = hn::IfThenElse(large, half_exp_f32(d, a), y);
  return hn::CopySign(y, x);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V cosh_f32(D d, V x) {
  const V a = hn::Abs(x), half = hn::Set(d, 0.5f);
  const V e = exp_f32(d, at_most(d, 88.0f, a));
  V y = hn::MulAdd(half, e, hn::Div(half, e));
  const auto large = hn::Gt(a, hn::Set(d, 88.0f));
  if (HWY_UNLIKELY(!hn::AllFalse(d, large))) y = hn::IfThenElse(large, half_exp_f32(d, a), y);
  return y;
}

/// Returns log(1 + u), or log(2 a) if a is above 2^12, for the inverses of sinh and cosh.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V log1p_or_log2a_f32(D d, V u, V a) {
  const auto large = hn::Gt(a, hn::Set(d, 4096.0f));
  const V y = log1p_f32(d, hn::IfThenElse(large, hn::Sub(a, hn::Set(d, 1.0f)), u));
  return hn::Add(y, hn::IfThenElseZero(large, hn::Set(d, 0.693147182f)));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V asinh_f32(D d, V x) {
  const V a = hn::Abs(x), one = hn::Set(d, 1.0f), s = hn::Mul(a, a);
  const V root = hn::Sqrt(hn::Add(s, one));
  const V u = hn::Add(a, hn::Div(s, hn::Add(root, one)));
  return hn::CopySign(log1p_or_log2a_f32(d, u, a), x);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V acosh_f32(D d, V x) {
  const V one = hn::Set(d, 1.0f), t = hn::Sub(x, one);
  const V u = hn::Add(t, hn::Sqrt(hn::MulAdd(t, t, hn::Add(t, t))));
  const V nan = hn::Set(d, std::numeric_limits<float>::quiet_NaN());
  return hn::IfThenElse(hn::Lt(x, one), nan, log1p_or_log2a_f32(d, u, x));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V atanh_f32(D d, V x) {
  const V a = hn::Abs(x), u = hn::Div(hn::Add(a, a), hn::Sub(hn::Set(d, 1.0f), a));
  return hn::CopySign(hn::Mul(hn::Set(d, 0.5f), log1p_f32(d, u)), x);
}

/// π/2 as the sum of two floats.
constexpr float kHalfPi = 1.57079637f, kHalfPiRest = -4.37113883e-8f;

/// Returns asin(s) for |s| up to 1/2; z is s * s.
/// Source: the polynomial of Cephes' asinf (Moshier).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V asin_near_0_f32(D d, V s, V z) {
  V p = hn::Set(d, 4.2163199048e-2f);
  p = hn::MulAdd(p, z, hn::Set(d, 2.4181311049e-2f));
  p = hn::MulAdd(p, z, hn::Set(d, 4.5470025998e-2f));
  p = hn::MulAdd(p, z, hn::Set(d, 7.4953002686e-2f));
  p = hn::MulAdd(p, z, hn::Set(d, 1.6666752422e-1f));
  return hn::MulAdd(hn::Mul(p, z), s, s);
}
/// Returns asin(sqrt((1 - a) / 2)), which is acos(a) / 2, for an a above 1/2.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V half_acos_f32(D d, V a) {
  const V half = hn::Set(d, 0.5f);
  const V z = hn::NegMulAdd(half, a, half);
  return asin_near_0_f32(d, hn::Sqrt(z), z);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V asin_f32(D d, V x) {
  const V a = hn::Abs(x), p = half_acos_f32(d, a);
  const V rest = hn::Sub(hn::Set(d, kHalfPiRest), hn::Add(p, p));
  const V far = hn::Add(hn::Set(d, kHalfPi), rest);
  const V near = asin_near_0_f32(d, a, hn::Mul(a, a));
  return hn::CopySign(hn::IfThenElse(hn::Le(a, hn::Set(d, 0.5f)), near, far), x);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V acos_f32(D d, V x) {
  const V p = half_acos_f32(d, hn::Abs(x)), twice = hn::Add(p, p);
  const V pi = hn::Set(d, 2 * kHalfPi), pi_rest = hn::Set(d, 2 * kHalfPiRest);
  const V far = if_negative(d, x, hn::Add(pi, hn::Sub(pi_rest, twice)), twice);
  const V near = asin_near_0_f32(d, x, hn::Mul(x, x));
  const V middle = hn::Add(hn::Set(d, kHalfPi), hn::Sub(hn::Set(d, kHalfPiRest), near));
  return hn::IfThenElse(hn::Le(hn::Abs(x), hn::Set(d, 0.5f)), middle, far);
}

/// Returns atan(small / large) for 0 <= small <= large, large > 0, neither infinite.
/// Source: the polynomial of Cephes' atanf (Moshier).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V atan_ratio_f32(D d, V small, V large) {
  const auto middle = hn::Gt(small, hn::Mul(large, hn::Set(d, 0.414213562f)));
  const V above = hn::IfThenElse(middle, hn::Sub(small, large), small);
  const V below = hn::IfThenElse(middle, hn::Add(small, large), large);
  const V t = hn::Div(above, below), z = hn::Mul(t, t);
  V p = hn::Set(d, 8.05374449538e-2f);
  p = hn::MulAdd(p, z, hn::Set(d, -1.38776856032e-1f));
  p = hn::MulAdd(p, z, hn::Set(d, 1.99777106478e-1f));
  p = hn::MulAdd(p, z, hn::Set(d, -3.33329491539e-1f));
  const V y = hn::MulAdd(hn::Mul(p, z), t, t);
  const V quarter = hn::IfThenElseZero(middle, hn::Set(d, 0.5f * kHalfPi));
  const V rest = hn::IfThenElseZero(middle, hn::Set(d, 0.5f * kHalfPiRest));
  return hn::Add(quarter, hn::Add(rest, y));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V atan_f32(D d, V x) {
  const V a = hn::Abs(x), one = hn::Set(d, 1.0f);
  const V bounded = at_most(d, 0x1p30f, a);
  const auto steep = hn::Gt(a, one);
  const V small = hn::IfThenElse(steep, one, bounded);
  const V r = atan_ratio_f32(d, small, hn::IfThenElse(steep, bounded, one));
  const V turned = hn::Add(hn::Set(d, kHalfPi), hn::Sub(hn::Set(d, kHalfPiRest), r));
  const V y = hn::CopySign(hn::IfThenElse(steep, turned, r), x);
  return hn::IfThenElse(hn::Eq(a, a), y, x);
}

/// Returns the angle of the point (x, y), with the special values of std::atan2.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V atan2_f32(D d, V y, V x) {
  // Scales large numbers, so that their sums do not overflow. Infinities count as equal and larger
  // than any number.
  const V ay = hn::Abs(y), ax = hn::Abs(x), one = hn::Set(d, 1.0f);
  const V inf = hn::Set(d, std::numeric_limits<float>::infinity());
  const auto steep = hn::Gt(ay, ax);
  const V large = hn::IfThenElse(steep, ay, ax), small = hn::IfThenElse(steep, ax, ay);
  const auto endless = hn::Eq(large, inf), both = hn::Eq(small, inf);
  const V scale = hn::IfThenElse(hn::Gt(large, one), hn::Set(d, 0.25f), one);
  V above = hn::Mul(small, scale), below = hn::Mul(large, scale);
  above = hn::IfThenElse(both, one, hn::IfThenElse(endless, hn::Zero(d), above));
  below = hn::IfThenElse(hn::Or(endless, hn::Eq(large, hn::Zero(d))), one, below);
  V r = atan_ratio_f32(d, above, below);
  const V half_pi = hn::Set(d, kHalfPi), rest = hn::Set(d, kHalfPiRest);
  r = hn::IfThenElse(steep, hn::Add(half_pi, hn::Sub(rest, r)), r);
  const V back = hn::Add(hn::Add(half_pi, half_pi), hn::Sub(hn::Add(rest, rest), r));
  // Tests the sign bit, so that -0 is on the left.
  const hn::RebindToSigned<D> di;
  const auto left = hn::RebindMask(d, hn::Lt(hn::BitCast(di, x), hn::Zero(di)));
  r = hn::CopySign(hn::IfThenElse(left, back, r), y);
  return hn::IfThenElse(hn::And(hn::Eq(x, x), hn::Eq(y, y)), r, hn::Add(x, y));
}

/// Returns the cube root.
/// Source: the first guess is that of FreeBSD's cbrtf; two steps of Halley's method follow.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V cbrt_f32(D d, V x) {
  const hn::RebindToSigned<D> di;
  const V a0 = hn::Abs(x);
  // Scales a, so that it is normal and 3 a does not overflow.
  const V one = hn::Set(d, 1.0f);
  const auto tiny = hn::Lt(a0, hn::Set(d, std::numeric_limits<float>::min()));
  const auto huge = hn::Gt(a0, hn::Set(d, 0x1p125f));
  const V scale = hn::IfThenElse(tiny, hn::Set(d, 0x1p24f),
                                 hn::IfThenElse(huge, hn::Set(d, 0x1p-24f), one));
  const V back = hn::IfThenElse(tiny, hn::Set(d, 0x1p-8f),
                                hn::IfThenElse(huge, hn::Set(d, 0x1p8f), one));
  const V a = hn::Mul(a0, scale);
  const V third = hn::Mul(hn::ConvertTo(d, hn::BitCast(di, a)), hn::Set(d, 1.0f / 3));
  V t = hn::BitCast(d, hn::Add(hn::ConvertTo(di, third), hn::Set(di, 709958130)));
  for (int i = 0; i < 2; ++i) {
    const V square = hn::Mul(t, t), cube = hn::Mul(square, t);
    const V off = hn::MulSub(square, t, a);
    t = hn::NegMulAdd(t, hn::Div(off, hn::Add(hn::Add(cube, cube), a)), t);
  }
  t = hn::CopySign(hn::Mul(t, back), x);
  const V inf = hn::Set(d, std::numeric_limits<float>::infinity());
  return hn::IfThenElse(hn::And(hn::Gt(a0, hn::Zero(d)), hn::Lt(a0, inf)), t, x);
}

HWY_INLINE float libm_fmod(float a, float b) {
  return std::fmod(a, b);
}

#if HWY_TARGET == HWY_SCALAR
template <class D, class V = hn::Vec<D>>
HWY_INLINE V tan_f32(D d, V x) {
  return libm1_f32<OpKind::kTan>(d, x);
}
#else
/// Source: the polynomial of Cephes' tanf (Moshier).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V tan_f32(D d, V x) {
  const auto reduced = reduce_quarters_f32(d, x);
  const hn::RebindToSigned<D> di;
  const V r = reduced.rest, z = hn::Mul(r, r);
  V p = hn::Set(d, 9.38540185543e-3f);
  p = hn::MulAdd(p, z, hn::Set(d, 3.11992232697e-3f));
  p = hn::MulAdd(p, z, hn::Set(d, 2.44301354525e-2f));
  p = hn::MulAdd(p, z, hn::Set(d, 5.34112807005e-2f));
  p = hn::MulAdd(p, z, hn::Set(d, 1.33387994085e-1f));
  p = hn::MulAdd(p, z, hn::Set(d, 3.33331568548e-1f));
  const V y = hn::MulAdd(hn::Mul(p, z), r, r);
  const auto odd = hn::MaskFromVec(
      hn::BitCast(d, hn::Neg(hn::And(reduced.quarters, hn::Set(di, 1)))));
  const V turned = hn::IfThenElse(odd, hn::Div(hn::Set(d, -1.0f), y), y);
  const V tan = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), x, turned);
  return patch_f32(d, hn::Not(hn::Lt(hn::Abs(x), hn::Set(d, 134217728.0f))), tan, x, x,
                   libm1<OpKind::kTan>);
}
#endif

/// Returns std::fmod(a, b), exactly. A quotient below 2^22 is at most one too large after rounding;
/// the rest then lacks one b. Lanes with larger quotients use the C library.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V fmod_f32(D d, V a, V b) {
#if HWY_TARGET <= HWY_AVX2
  const V q = hn::Trunc(hn::Div(a, b)), r0 = hn::NegMulAdd(q, b, a);
  const V size = hn::Abs(b);
  // The sign of the rest, as that of a would have it.
  const V turned = hn::Xor(r0, hn::And(hn::SignBit(d), a));
  const V r = hn::CopySign(
      hn::IfThenElse(hn::Lt(turned, hn::Zero(d)), hn::Add(turned, size), turned), a);
  const auto plain = hn::And(hn::Lt(hn::Abs(q), hn::Set(d, 4194304.0f)),
                             hn::Lt(size, hn::Set(d, std::numeric_limits<float>::infinity())));
  return patch_f32(d, hn::Not(plain), r, a, b, libm_fmod);
#else
  return patch_f32(d, hn::Eq(hn::Zero(d), hn::Zero(d)), a, a, b, libm_fmod);
#endif
}

}  // namespace stow::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // STOW_SIMD_MATH_RARE_INL_H_
