// Vector functions of f32, at most 3 ulp from the exact value, IEEE's special values included.
// Not for f64; that falls back on the C library, one element at a time.
//
// Included once a target, after hwy/highway.h. A lane's result depends on that lane's input alone.
// Every function takes and returns a vector of floats of tag d. On a target of one lane (scalar)
// sin, cos, erfc, erf_inv and pow come from the C library or from double.
// NOLINTNEXTLINE
#if defined(STOW_SIMD_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STOW_SIMD_MATH_INL_H_
#undef STOW_SIMD_MATH_INL_H_
#else
#define STOW_SIMD_MATH_INL_H_
#endif

#include <cmath>
#include <limits>

#include <hwy/highway.h>
#include "stowage/base/inside.h"
#include "stowage/runtime/cpu/kernels/exp_table-inl.h"
#include "stowage/runtime/cpu/kernels/row_scalar.h"

HWY_BEFORE_NAMESPACE();
namespace stow::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// ±2^31 and beyond have no place here; a caller bounds x first. Nearest even, exact.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V magic_f32(D d) {
  return hn::Set(d, 12582912.0f);  // 1.5 * 2^23
}

/// x = n ln 2 + r, |r| <= ln 2 / 2: n, and expm1(r).
/// Source: the polynomial of Cephes' expf (Moshier).
template <class D, class V = hn::Vec<D>>
struct ExpParts {
  hn::Vec<hn::RebindToSigned<D>> n;
  V p;  ///< expm1(r)
};
template <class D, class V = hn::Vec<D>>
HWY_INLINE ExpParts<D> exp_parts_f32(D d, V x) {
  const hn::RebindToSigned<D> di;
  const V magic = magic_f32(d);
  const V shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), magic);
  const V n = hn::Sub(shifted, magic);
  V r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  V q = hn::Set(d, 1.9875691500e-4f);
  q = hn::MulAdd(q, r, hn::Set(d, 1.3981999507e-3f));
  q = hn::MulAdd(q, r, hn::Set(d, 8.3334519073e-3f));
  q = hn::MulAdd(q, r, hn::Set(d, 4.1665795894e-2f));
  q = hn::MulAdd(q, r, hn::Set(d, 1.6666665459e-1f));
  q = hn::MulAdd(q, r, hn::Set(d, 5.0000001201e-1f));
  return {hn::Sub(hn::BitCast(di, shifted), hn::BitCast(di, magic)),
          hn::MulAdd(hn::Mul(r, r), q, r)};
}

/// x within a bound; a NaN stays one. On x86 Min and Max hand their second operand on with a NaN; the
/// portable ones hand on the operand that is none.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V at_most(D d, float bound, V x) {
#if HWY_TARGET <= HWY_SSSE3
  return hn::Min(hn::Set(d, bound), x);
#else
  return hn::IfThenElse(hn::Gt(x, hn::Set(d, bound)), hn::Set(d, bound), x);
#endif
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE V at_least(D d, float bound, V x) {
#if HWY_TARGET <= HWY_SSSE3
  return hn::Max(hn::Set(d, bound), x);
#else
  return hn::IfThenElse(hn::Lt(x, hn::Set(d, bound)), hn::Set(d, bound), x);
#endif
}

/// `yes` where x has its sign bit set, else `no`.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V if_negative(D, V x, V yes, V no) {
#if HWY_TARGET == HWY_AVX2
  if constexpr (hn::MaxLanes(D()) == 8) return V{_mm256_blendv_ps(no.raw, yes.raw, x.raw)};
#endif
  return hn::IfNegativeThenElse(x, yes, no);
}

// What is rounded to 0 in the end, as where scores are hidden, is not scaled down to it: underflow
// takes some hundred cycles on Intel's.
constexpr float kLeastExp = -104.0f;

/// e^x for x up to 89.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_small_f32(D d, V x) {
#if HWY_TARGET == HWY_AVX3
  if constexpr (kHasScale<D>) return exp_from_f32(d, kLeastExp, x);
#endif
  // By 2^64 more or less than is right, which takes nothing from any result, and then by the rest.
  const V rest = if_negative(d, x, hn::Set(d, 0x1p-64f), hn::Set(d, 0x1p64f));
  const V magic = if_negative(d, x, hn::Set(d, kEighths + 127 + 64),
                              hn::Set(d, kEighths + 127 - 64));
  return hn::Mul(exp_by_power_f32(d, kLeastExp, x, magic), rest);
}

/// e^x for x up to 0.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_of_negative_f32(D d, V x) {
#if HWY_TARGET == HWY_AVX3
  if constexpr (kHasScale<D>) return exp_from_f32(d, kLeastExp, x);
#endif
  const V magic = hn::Set(d, kEighths + 127 + 64);
  return hn::Mul(exp_by_power_f32(d, kLeastExp, x, magic), hn::Set(d, 0x1p-64f));
}

/// e^x.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_f32(D d, V x) {
  return exp_small_f32(d, at_most(d, 89.0f, x));
}

/// e^x - 1 for x between -25 and 88.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V expm1_small_f32(D d, V x) {
  const hn::RebindToSigned<D> di;
  const auto parts = exp_parts_f32(d, x);
  const V scale = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(parts.n, hn::Set(di, 127))));
  const V y = hn::MulAdd(scale, parts.p, hn::Sub(scale, hn::Set(d, 1.0f)));
  return hn::IfThenElse(hn::Eq(x, hn::Zero(d)), x, y);
}

/// e^x - 1.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V expm1_f32(D d, V x0) {
  const hn::RebindToSigned<D> di;
  using VI = hn::Vec<decltype(di)>;
  const V one = hn::Set(d, 1.0f);
  const V x = at_most(d, 89.0f, at_least(d, -25.0f, x0));
  const auto parts = exp_parts_f32(d, x);
  // 2^n p + (2^n - 1), by way of n - 1 at n = 128, where 2^n is no float.
  const VI m = hn::Min(parts.n, hn::Set(di, 127));
  const VI bias = hn::Set(di, 127);
  const V scale = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(m, bias)));
  const V rest = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::Sub(parts.n, m), bias)));
  const V y = hn::MulAdd(scale, parts.p, hn::Sub(scale, hn::Div(one, rest)));
  return hn::IfThenElse(hn::Eq(x0, hn::Zero(d)), x0, hn::Mul(y, rest));
}

/// log(1 + f) + n ln 2 + c for 1 + f in [sqrt(1/2), sqrt(2)] and a small correction c.
/// Source: the polynomial of Cephes' logf (Moshier).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V log_core_f32(D d, V f, V n, V c) {
  V p = hn::Set(d, 7.0376836292e-2f);
  p = hn::MulAdd(p, f, hn::Set(d, -1.1514610310e-1f));
  p = hn::MulAdd(p, f, hn::Set(d, 1.1676998740e-1f));
  p = hn::MulAdd(p, f, hn::Set(d, -1.2420140846e-1f));
  p = hn::MulAdd(p, f, hn::Set(d, 1.4249322787e-1f));
  p = hn::MulAdd(p, f, hn::Set(d, -1.6668057665e-1f));
  p = hn::MulAdd(p, f, hn::Set(d, 2.0000714765e-1f));
  p = hn::MulAdd(p, f, hn::Set(d, -2.4999993993e-1f));
  p = hn::MulAdd(p, f, hn::Set(d, 3.3333331174e-1f));
  const V f2 = hn::Mul(f, f);
  V y = hn::MulAdd(n, hn::Set(d, -2.12194440e-4f), c);
  y = hn::MulAdd(hn::Mul(f2, f), p, y);
  y = hn::NegMulAdd(hn::Set(d, 0.5f), f2, y);
  return hn::MulAdd(n, hn::Set(d, 0.693359375f), hn::Add(f, y));
}

inline constexpr int32_t kSqrtHalfBits = 0x3f3504f3;  // sqrt(1/2)
inline constexpr int32_t kMantissaBits = 0x7fffff;

/// Splits a positive normal x = 2^n (1 + f), 1 + f in [sqrt(1/2), sqrt(2)).
template <class D, class V = hn::Vec<D>>
HWY_INLINE void split_f32(D d, V x, V& n, V& f) {
  const hn::RebindToSigned<D> di;
  const auto offset = hn::Set(di, kSqrtHalfBits);
  const auto bits = hn::Sub(hn::BitCast(di, x), offset);
  n = hn::ConvertTo(d, hn::ShiftRight<23>(bits));
  const auto m = hn::Add(hn::And(bits, hn::Set(di, kMantissaBits)), offset);
  f = hn::Sub(hn::BitCast(d, m), hn::Set(d, 1.0f));
}

/// The special values of a logarithm of x: of 0, of what is below 0, of infinity and NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V log_specials_f32(D d, V x, V y) {
  const V zero = hn::Zero(d);
  const V inf = hn::Set(d, std::numeric_limits<float>::infinity());
  y = hn::IfThenElse(hn::Eq(x, zero), hn::Neg(inf), y);
  y = hn::IfThenElse(hn::Lt(x, inf), y, x);  // infinity and NaN are their own
  return hn::IfThenElse(hn::Lt(x, zero), hn::Set(d, std::numeric_limits<float>::quiet_NaN()), y);
}

/// Whether all of x are positive and normal, and so have nothing special about them.
template <class D, class V = hn::Vec<D>>
HWY_INLINE bool all_normal_f32(D d, V x) {
  const V least = hn::Set(d, std::numeric_limits<float>::min());
  const V most = hn::Set(d, std::numeric_limits<float>::max());
  return hn::AllTrue(d, hn::And(hn::Ge(x, least), hn::Le(x, most)));
}

/// The natural logarithm.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V log_f32(D d, V x) {
  if (HWY_LIKELY(all_normal_f32(d, x))) {
    V n, f;
    split_f32(d, x, n, f);
    return log_core_f32(d, f, n, hn::Zero(d));
  }
  const auto denormal = hn::Lt(x, hn::Set(d, std::numeric_limits<float>::min()));
  const V scaled = hn::IfThenElse(denormal, hn::Mul(x, hn::Set(d, 33554432.0f)), x);
  V n, f;
  split_f32(d, scaled, n, f);
  n = hn::Sub(n, hn::IfThenElseZero(denormal, hn::Set(d, 25.0f)));
  return log_specials_f32(d, x, log_core_f32(d, f, n, hn::Zero(d)));
}

/// log(1 + x): the logarithm of u, 1 + x rounded, and what the rounding lost over u. The latter is small,
/// so a parabola stands for the quotient; no vector divides.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V log1p_f32(D d, V x) {
  const hn::RebindToSigned<D> di;
  const V one = hn::Set(d, 1.0f);
  const V u = hn::Add(x, one);
  const V lost = hn::Sub(hn::Min(x, one), hn::Sub(u, hn::Max(x, one)));
  const auto u_bits = hn::BitCast(di, u);
  const auto bits = hn::Sub(u_bits, hn::Set(di, kSqrtHalfBits));
  const auto exponent = hn::AndNot(hn::Set(di, kMantissaBits), bits);  // n in an exponent's place
  const V n = hn::ConvertTo(d, hn::ShiftRight<23>(bits));
  const V m = hn::BitCast(d, hn::Sub(u_bits, exponent));
  // 2^-n, or 0 where that would be no normal number.
  const auto one_bits = hn::BitCast(di, one);
  const V scale = hn::BitCast(d, hn::Sub(one_bits, hn::Min(exponent, one_bits)));
  const V f = hn::Sub(m, one), c = hn::Mul(lost, scale);
  V y = log_core_f32(d, f, n, hn::MulAdd(c, hn::MulSub(f, f, f), c));  // c (1 - f + f^2)
  if (HWY_UNLIKELY(!all_normal_f32(d, u))) y = log_specials_f32(d, u, y);
  return hn::CopySign(y, x);  // the sign of -0
}

/// Source: the three ranges are those of musl's tanhf.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V tanh_f32(D d, V x) {
  const V a = hn::Abs(x), one = hn::Set(d, 1.0f), two = hn::Set(d, 2.0f);
  const auto large = hn::Gt(a, hn::Set(d, 0.549306f));   // log(3) / 2
  const auto small = hn::Lt(a, hn::Set(d, 0.2554128f));  // log(5/3) / 2
  const V doubled = at_most(d, 40.0f, hn::Add(a, a));
  const V t = expm1_small_f32(d, hn::IfThenElse(small, hn::Neg(doubled), doubled));
  const V q = hn::Div(hn::IfThenElse(large, two, hn::Abs(t)), hn::Add(t, two));
  return hn::CopySign(hn::IfThenElse(large, hn::Sub(one, q), q), x);
}

/// 1 / (1 + e^-x), exact to a few ulp down to its denormal results.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V logistic_f32(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  const V e = exp_of_negative_f32(d, hn::Or(hn::SignBit(d), x));  // -|x|
  return hn::Div(if_negative(d, x, e, one), hn::Add(one, e));
}

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
// logistic_bf16() is 2^-64 / (2^-64 + 2^(t - 64)): nothing overflows that matters. 2^fraction is a
// polynomial whose coefficients, and log2(e) with them, were searched for its very results. In
// three steps, each over N vectors at once.
inline constexpr float kLogisticUnit = 0x1p-64f;

/// t, and its fraction.
template <class D, size_t N, class V = hn::Vec<D>>
HWY_INLINE void logistic_bf16_exponent(D d, const V (&x)[N], V (&t)[N], V (&fraction)[N]) {
#pragma GCC unroll 4
  for (size_t k = 0; k < N; ++k) t[k] = hn::Mul(x[k], hn::Set(d, -0x1.715478p+0f));
#if HWY_TARGET == HWY_AVX3
  constexpr int kFloor = _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC;
#pragma GCC unroll 4
  for (size_t k = 0; k < N; ++k) fraction[k] = V{_mm512_reduce_ps(t[k].raw, kFloor)};
#else
#pragma GCC unroll 4
  for (V& v : t) v = at_most(d, 190.0f, at_least(d, -62.0f, v));
#pragma GCC unroll 4
  for (size_t k = 0; k < N; ++k) fraction[k] = hn::Sub(t[k], hn::Floor(t[k]));
#endif
}
/// 2^fraction, where there is an instruction to multiply by 2^floor(t), 2^(fraction - 64).
template <class D, size_t N, class V = hn::Vec<D>>
HWY_INLINE void logistic_bf16_power(D d, const V (&fraction)[N], V (&power)[N]) {
  constexpr float kUnit = HWY_TARGET == HWY_AVX3 ? kLogisticUnit : 1;
#pragma GCC unroll 4
  for (V& p : power) p = hn::Set(d, 0x1.bfe008p-7f * kUnit);
#pragma GCC unroll 4
  for (const float c : {0x1.a7fb8ep-5f, 0x1.eed3aap-3f, 0x1.62cd9ap-1f, 0x1.00001p+0f})
#pragma GCC unroll 4
    for (size_t k = 0; k < N; ++k)
      power[k] = hn::MulAdd(power[k], fraction[k], hn::Set(d, c * kUnit));
}
/// The logistic.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V logistic_bf16_of(D d, V power, V t) {
#if HWY_TARGET == HWY_AVX3
  const V e = V{_mm512_scalef_ps(power.raw, t.raw)};
#else
  // 2^(floor - 64): its exponent is the last bits of a float.
  const V bits = hn::Add(hn::Floor(t), hn::Set(d, 12582912.0f + 127 - 64));
  const hn::RebindToSigned<D> di;
  const V e = hn::Mul(power, hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, bits))));
#endif
  const V unit = hn::Set(d, kLogisticUnit);
  return hn::Div(unit, hn::Add(unit, e));
}
#endif

/// logistic_f32 for an x of bf16 and a result that is rounded to bf16: near enough for the same
/// bits, which a test holds for every x. A NaN gives a NaN, whose sign may differ.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V logistic_bf16(D d, V x) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
  if constexpr (hn::MaxLanes(d) == (HWY_TARGET == HWY_AVX3 ? 16 : 8)) {
    V t[1], fraction[1], power[1];
    logistic_bf16_exponent(d, {x}, t, fraction);
    logistic_bf16_power(d, fraction, power);
    return logistic_bf16_of(d, power[0], t[0]);
  }
#endif
  return logistic_f32(d, x);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V rsqrt_f32(D d, V x) {
  return hn::Div(hn::Set(d, 1.0f), hn::Sqrt(x));
}

/// erf(a) for |a| up to 0.93, not the sign of 0; `s` is a * a.
/// Source: as erf_f32.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V erf_near_0_f32(D d, V a, V s) {
  V q = hn::Set(d, -5.96761703e-4f);
  q = hn::MulAdd(q, s, hn::Set(d, 4.99119423e-3f));
  q = hn::MulAdd(q, s, hn::Set(d, -2.67681349e-2f));
  q = hn::MulAdd(q, s, hn::Set(d, 1.12819925e-1f));
  q = hn::MulAdd(q, s, hn::Set(d, -3.76125336e-1f));
  q = hn::MulAdd(q, s, hn::Set(d, 1.28379166e-1f));
  return hn::MulAdd(q, a, a);
}

/// Source: N. Juffa's erff (public domain, Stack Overflow and NVIDIA forums).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V erf_f32(D d, V a) {
  const V t = hn::Abs(a), s = hn::Mul(a, a);
  V r = hn::MulAdd(hn::Set(d, -1.72853470e-5f), t, hn::Set(d, 3.83197126e-4f));
  const V u = hn::MulAdd(hn::Set(d, -3.88396438e-3f), t, hn::Set(d, 2.42546219e-2f));
  r = hn::MulAdd(r, s, u);
  r = hn::MulAdd(r, t, hn::Set(d, -1.06777877e-1f));
  r = hn::MulAdd(r, t, hn::Set(d, -6.34846687e-1f));
  r = hn::MulAdd(r, t, hn::Set(d, -1.28717512e-1f));
  r = hn::MulAdd(r, t, hn::Neg(t));
  const V outer = hn::CopySign(hn::Sub(hn::Set(d, 1.0f), exp_f32(d, r)), a);
  // From 4 on the polynomial leaves its range, and erf is 1 to the last bit.
  const V flat = hn::CopySign(hn::Set(d, 1.0f), a);
  const V y = hn::IfThenElse(hn::Gt(t, hn::Set(d, 4.0f)), flat, outer);
  return hn::IfThenElse(hn::Gt(t, hn::Set(d, 0.927734375f)), y,
                        hn::IfThenElse(hn::Eq(a, hn::Zero(d)), a, erf_near_0_f32(d, a, s)));
}

/// Where `mask` holds, f of the lane; elsewhere y. For the lanes too rare to deserve vector code.
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

// Lane by lane in double and rounded to f32, with one operand and with two.
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
/// The inverse of erf; ±1 give ±infinity, beyond them NaN.
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

/// 1 - erf(x), also where that is tiny: e^-a^2 f(a) / (1 + 2 a) with a = |x|, and 2 less that for
/// negative x; near 0 by erf.
/// Source: the form is that of Shepherd and Laframboise 1981, "Chebyshev approximation of
/// (1 + 2x) exp(x^2) erfc x"; the polynomial is a minimax fit of ours, within 1.6e-8 of
/// itself from 0.495 to 10.1.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V erfc_f32(D d, V x) {
  const V a = at_most(d, 10.2f, hn::Abs(x));  // where e^-a^2 is 0
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
  // What roundings took: of a^2, of 1 + 2 a, and of the quotient.
  const V s = hn::Mul(a, a), s_rest = hn::MulSub(a, a, s);
  const V b = hn::MulAdd(two, a, one), b_rest = hn::MulSub(two, a, hn::Sub(b, one));
  const V inverse = hn::Div(one, b), f = hn::Mul(p, inverse);
  const V p_rest = hn::NegMulAdd(f, b_rest, hn::NegMulAdd(f, b, p));
  const V f_rest = hn::MulSub(p_rest, inverse, hn::Mul(f, s_rest));
  const V tail = hn::Mul(exp_of_negative_f32(d, hn::Neg(s)), hn::Add(f, f_rest));
  const V y = if_negative(d, x, hn::Sub(two, tail), tail);
  return hn::IfThenElse(hn::Lt(a, hn::Set(d, 0.5f)), hn::Sub(one, erf_near_0_f32(d, x, s)), y);
}

/// x - k π/2 for the nearest integer k. |x| < 2^27.
/// Source: FreeBSD's __ieee754_rem_pio2f (π/2 in a part of 25 bits and a rest, in double).
template <class DD, class VD = hn::Vec<DD>>
HWY_INLINE VD reduce_pi_2(DD dd, VD x, VD& k) {
  const VD magic = hn::Set(dd, 6755399441055744.0);  // 1.5 * 2^52
  const VD shifted = hn::MulAdd(x, hn::Set(dd, 6.36619772367581382433e-01), magic);
  k = hn::Sub(shifted, magic);
  x = hn::NegMulAdd(k, hn::Set(dd, 1.57079631090164184570e+00), x);
  return hn::NegMulAdd(k, hn::Set(dd, 1.58932547735281966916e-08), x);
}

/// x = quarters π/2 + rest, |rest| <= π/4. |x| < 2^27.
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

/// sin(x + quarters π/2).
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

/// e^(y log x) for normal x > 0 and finite y, in double: far closer than a float's half ulp.
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

/// 2^x.
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
  // In two factors: neither is too large or too small for a float.
  const auto n = hn::Sub(hn::BitCast(di, shifted), hn::BitCast(di, magic));
  const auto half = hn::ShiftRight<1>(n), bias = hn::Set(di, 127);
  const V first = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(half, bias)));
  const V second = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::Sub(n, half), bias)));
  return hn::Mul(hn::Mul(p, first), second);
}

/// x^y with the special values of std::pow.
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
  // Below zero: an even integer y gives |x|^y, an odd one its opposite, any other NaN.
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

#endif  // STOW_SIMD_MATH_INL_H_
