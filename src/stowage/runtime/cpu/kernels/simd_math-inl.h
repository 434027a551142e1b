// Vector functions of f32, at most 3 ulp from the exact value, with IEEE's special values.
// Not for f64, whose functions call the C library for each element.
//
// Included once for each target, after hwy/highway.h. A lane's result depends on that lane's input
// alone. Unless stated otherwise, functions take and return vectors of floats of tag d.
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

HWY_BEFORE_NAMESPACE();
namespace stow::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Returns the number that, added to an x of magnitude below 2^22, rounds x to the nearest integer,
/// ties to even. The integer is in the low bits of the sum; subtracting the number gives it as a
/// float.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V magic_f32(D d) {
  return hn::Set(d, 12582912.0f);  // 1.5 * 2^23
}

/// The parts n and expm1(r) of e^x, where x = n ln 2 + r and |r| <= ln 2 / 2.
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

/// Return min(bound, x) and max(bound, x); a NaN stays a NaN. If an operand is a NaN, Min and Max
/// return the second operand on x86, and the operand that is not a NaN elsewhere.
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

/// Returns `yes` in lanes in which x has its sign bit set, `no` in others.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V if_negative(D, V x, V yes, V no) {
#if HWY_TARGET == HWY_AVX2
  if constexpr (hn::MaxLanes(D()) == 8) return V{_mm256_blendv_ps(no.raw, yes.raw, x.raw)};
#endif
  return hn::IfNegativeThenElse(x, yes, no);
}

// Least x for which e^x is computed; below it e^x is set to 0, as for hidden scores. Computing a
// result that underflows would take some hundred cycles on Intel's processors.
constexpr float kLeastExp = -104.0f;

/// Returns e^x for x up to 89.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_small_f32(D d, V x) {
#if HWY_TARGET == HWY_AVX3
  if constexpr (kHasScale<D>) return exp_from_f32(d, kLeastExp, x);
#endif
  // Scales by a power that is 2^64 too large or too small, so that no intermediate result under- or
  // overflows, then by 2^-64 or 2^64.
  const V rest = if_negative(d, x, hn::Set(d, 0x1p-64f), hn::Set(d, 0x1p64f));
  const V magic = if_negative(d, x, hn::Set(d, kEighths + 127 + 64),
                              hn::Set(d, kEighths + 127 - 64));
  return hn::Mul(exp_by_power_f32(d, kLeastExp, x, magic), rest);
}

/// Returns e^x for x up to 0.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_of_negative_f32(D d, V x) {
#if HWY_TARGET == HWY_AVX3
  if constexpr (kHasScale<D>) return exp_from_f32(d, kLeastExp, x);
#endif
  const V magic = hn::Set(d, kEighths + 127 + 64);
  return hn::Mul(exp_by_power_f32(d, kLeastExp, x, magic), hn::Set(d, 0x1p-64f));
}

/// Returns e^x.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_f32(D d, V x) {
  return exp_small_f32(d, at_most(d, 89.0f, x));
}

/// Returns e^x - 1 for x between -25 and 88.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V expm1_small_f32(D d, V x) {
  const hn::RebindToSigned<D> di;
  const auto parts = exp_parts_f32(d, x);
  const V scale = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(parts.n, hn::Set(di, 127))));
  const V y = hn::MulAdd(scale, parts.p, hn::Sub(scale, hn::Set(d, 1.0f)));
  return hn::IfThenElse(hn::Eq(x, hn::Zero(d)), x, y);
}

/// Returns e^x - 1.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V expm1_f32(D d, V x0) {
  const hn::RebindToSigned<D> di;
  using VI = hn::Vec<decltype(di)>;
  const V one = hn::Set(d, 1.0f);
  const V x = at_most(d, 89.0f, at_least(d, -25.0f, x0));
  const auto parts = exp_parts_f32(d, x);
  // 2^n p + (2^n - 1). For n = 128, where 2^n is not a float, half of it, then doubled.
  const VI m = hn::Min(parts.n, hn::Set(di, 127));
  const VI bias = hn::Set(di, 127);
  const V scale = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(m, bias)));
  const V rest = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::Sub(parts.n, m), bias)));
  const V y = hn::MulAdd(scale, parts.p, hn::Sub(scale, hn::Div(one, rest)));
  return hn::IfThenElse(hn::Eq(x0, hn::Zero(d)), x0, hn::Mul(y, rest));
}

/// Returns log(1 + f) + n ln 2 + c for 1 + f in [sqrt(1/2), sqrt(2)] and a small correction c.
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

/// Splits a positive normal x into n and f: x = 2^n (1 + f), with 1 + f in [sqrt(1/2), sqrt(2)).
template <class D, class V = hn::Vec<D>>
HWY_INLINE void split_f32(D d, V x, V& n, V& f) {
  const hn::RebindToSigned<D> di;
  const auto offset = hn::Set(di, kSqrtHalfBits);
  const auto bits = hn::Sub(hn::BitCast(di, x), offset);
  n = hn::ConvertTo(d, hn::ShiftRight<23>(bits));
  const auto m = hn::Add(hn::And(bits, hn::Set(di, kMantissaBits)), offset);
  f = hn::Sub(hn::BitCast(d, m), hn::Set(d, 1.0f));
}

/// Returns y, a logarithm of x, with the special values for an x of 0, below 0, infinity or NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V log_specials_f32(D d, V x, V y) {
  const V zero = hn::Zero(d);
  const V inf = hn::Set(d, std::numeric_limits<float>::infinity());
  y = hn::IfThenElse(hn::Eq(x, zero), hn::Neg(inf), y);
  y = hn::IfThenElse(hn::Lt(x, inf), y, x);  // infinity gives infinity, NaN gives NaN
  return hn::IfThenElse(hn::Lt(x, zero), hn::Set(d, std::numeric_limits<float>::quiet_NaN()), y);
}

/// True if all lanes of x are positive and normal, so that none is a special case.
template <class D, class V = hn::Vec<D>>
HWY_INLINE bool all_normal_f32(D d, V x) {
  const V least = hn::Set(d, std::numeric_limits<float>::min());
  const V most = hn::Set(d, std::numeric_limits<float>::max());
  return hn::AllTrue(d, hn::And(hn::Ge(x, least), hn::Le(x, most)));
}

/// Returns the natural logarithm.
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

/// Returns log(1 + x): log(u) + lost / u, where u is 1 + x rounded and `lost` its rounding error.
/// The quotient is small and approximated by a parabola, without a division.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V log1p_f32(D d, V x) {
  const hn::RebindToSigned<D> di;
  const V one = hn::Set(d, 1.0f);
  const V u = hn::Add(x, one);
  const V lost = hn::Sub(hn::Min(x, one), hn::Sub(u, hn::Max(x, one)));
  V n, f;
  split_f32(d, u, n, f);
  const auto exponent = hn::AndNot(hn::Set(di, kMantissaBits),
                                   hn::Sub(hn::BitCast(di, u), hn::Set(di, kSqrtHalfBits)));
  // 2^-n, or 0 where that would be no normal number.
  const auto one_bits = hn::BitCast(di, one);
  const V scale = hn::BitCast(d, hn::Sub(one_bits, hn::Min(exponent, one_bits)));
  const V c = hn::Mul(lost, scale);
  V y = log_core_f32(d, f, n, hn::MulAdd(c, hn::MulSub(f, f, f), c));  // c (1 - f + f^2)
  if (HWY_UNLIKELY(!all_normal_f32(d, u))) y = log_specials_f32(d, u, y);
  return hn::CopySign(y, x);  // the sign of -0
}

/// Returns the hyperbolic tangent.
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

/// Returns 1 / (1 + e^-x), within a few ulp, denormal results included.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V logistic_f32(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  const V e = exp_of_negative_f32(d, hn::Or(hn::SignBit(d), x));  // -|x|
  return hn::Div(if_negative(d, x, e, one), hn::Add(one, e));
}

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
// logistic_bf16() is 2^-64 / (2^-64 + 2^(t - 64)) with t = -x log2(e), which cannot overflow where
// it matters. 2^fraction is a polynomial; its coefficients and log2(e) were searched to give
// exactly the rounded results. The three steps work on N vectors at a time.
inline constexpr float kLogisticUnit = 0x1p-64f;

/// Step 1: computes t and its fractional part.
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
/// Step 2: computes 2^fraction; on AVX-512, which can multiply by 2^floor(t), 2^(fraction - 64).
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
/// Step 3: returns the logistic, from the results of the other steps.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V logistic_bf16_of(D d, V power, V t) {
#if HWY_TARGET == HWY_AVX3
  const V e = V{_mm512_scalef_ps(power.raw, t.raw)};
#else
  // 2^(floor(t) - 64): the low bits of the sum are its exponent.
  const V bits = hn::Add(hn::Floor(t), hn::Set(d, 12582912.0f + 127 - 64));
  const hn::RebindToSigned<D> di;
  const V e = hn::Mul(power, hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, bits))));
#endif
  const V unit = hn::Set(d, kLogisticUnit);
  return hn::Div(unit, hn::Add(unit, e));
}
#endif

/// Returns an approximation of logistic_f32() for an x of bf16. Rounded to bf16 it has the same
/// bits; a test checks every x. A NaN gives a NaN, whose sign may differ.
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

/// Returns 1 / sqrt(x).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V rsqrt_f32(D d, V x) {
  return hn::Div(hn::Set(d, 1.0f), hn::Sqrt(x));
}

/// Returns erf(a) for |a| up to 0.93; `s` is a * a. The sign of a zero may be wrong.
/// Source: as of erf_f32().
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

/// Returns the error function.
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

}  // namespace stow::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // STOW_SIMD_MATH_INL_H_
