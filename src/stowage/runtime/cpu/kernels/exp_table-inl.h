// The core of exp: x = n ln 2 + r with n a multiple of 1/8, so that few terms of r will do and the
// eight fractions of n are one register's table. The same bits on AVX2 and AVX-512.
// Not the bounds of x, nor its special values; those are the callers'.
#if defined(STOW_KERNELS_EXP_TABLE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STOW_KERNELS_EXP_TABLE_INL_H_
#undef STOW_KERNELS_EXP_TABLE_INL_H_
#else
#define STOW_KERNELS_EXP_TABLE_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace stow::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Whether a vector scales by powers of two in one instruction.
template <class D>
constexpr bool kHasScale = HWY_TARGET == HWY_AVX3 &&
                           (hn::MaxLanes(D()) == 16 || hn::MaxLanes(D()) == 8);

/// table[i mod 8] where `at` holds integers i as the last bits of floats.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V of_eight(D d, const float* table, V at) {
#if HWY_TARGET == HWY_AVX3
  if constexpr (hn::MaxLanes(d) == 16)
    return V{_mm512_permutexvar_ps(_mm512_castps_si512(at.raw),  // which looks at four bits
                                   _mm512_broadcast_f32x8(_mm256_load_ps(table)))};
#endif
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
  if constexpr (hn::MaxLanes(d) == 8)
    return V{_mm256_permutevar8x32_ps(_mm256_load_ps(table), _mm256_castps_si256(at.raw))};
#endif
  const hn::RebindToSigned<D> di;
  return hn::GatherIndex(d, table, hn::And(hn::BitCast(di, at), hn::Set(di, 7)));
}

/// 1.5 * 2^20: what it is added to is rounded to eighths. With a power's bias added it is what
/// power_f32() likes.
constexpr float kEighths = 1572864.0f;

/// `shifted` is n + magic, an integer beyond kEighths; the result e^x / 2^floor(n), in (0.95, 1.92),
/// within 0.61 ulp.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_fraction_f32(D d, V x, V magic, V& shifted) {
  // 2^(i / 8) as floats, and how much of itself each lacks.
  HWY_ALIGN static constexpr float kRoots[8] = {0x1p+0f,        0x1.172b84p+0f, 0x1.306fep+0f,
                                                0x1.4bfdaep+0f, 0x1.6a09e6p+0f, 0x1.8ace54p+0f,
                                                0x1.ae89fap+0f, 0x1.d5818ep+0f};
  HWY_ALIGN static constexpr float kLacks[8] = {
      0,               -0x1.9c0c22p-27f, 0x1.125002p-25f,  -0x1.0a355p-25f,
      0x1.26055cp-26f, 0x1.67a1cap-28f,  -0x1.f9c304p-27f, -0x1.a5217cp-28f};
  shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), magic);
  const V n = hn::Sub(shifted, magic);
  V r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  V p = hn::MulAdd(r, hn::Set(d, 1.0f / 24), hn::Set(d, 1.0f / 6));
  p = hn::MulAdd(p, r, hn::Set(d, 0.5f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  p = hn::MulAdd(p, r, of_eight(d, kLacks, shifted));
  const V root = of_eight(d, kRoots, shifted);
  return hn::MulAdd(p, root, root);
}

/// 2^(floor(n) - 127 + bias) where `shifted` is n + (kEighths + bias).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V power_f32(D d, V shifted) {
  const hn::RebindToSigned<D> di;
  return hn::BitCast(d, hn::ShiftLeft<20>(hn::AndNot(hn::Set(di, 7), hn::BitCast(di, shifted))));
}

/// e^x times 2^(bias - 127) where `magic` is kEighths + bias; 0 where x is less than `least`, and NaN
/// for NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_by_power_f32(D d, float least, V x, V magic) {
  V shifted;
  const V y = exp_fraction_f32(d, x, magic, shifted);  // far below whatever comes: it is masked
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, least)), hn::Mul(y, power_f32(d, shifted)));
}

#if HWY_TARGET == HWY_AVX3
/// e^x for x in [least, 89]; 0 for what is less, and NaN for NaN. What is rounded to 0 is not
/// scaled down to it: underflow takes some hundred cycles on Intel's.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_from_f32(D d, float least, V x) {
  const auto none = hn::Lt(x, hn::Set(d, least));
  const V magic = hn::Set(d, kEighths);
  V shifted;
  const V y = exp_fraction_f32(d, x, magic, shifted);  // far below whatever comes: it is masked
  const V n = hn::Sub(shifted, magic);
  if constexpr (hn::MaxLanes(d) == 16)
    return V{_mm512_maskz_scalef_ps(static_cast<__mmask16>(~none.raw), y.raw, n.raw)};
  else
    return V{_mm256_maskz_scalef_ps(static_cast<__mmask8>(~none.raw), y.raw, n.raw)};
}
#endif

}  // namespace stow::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
