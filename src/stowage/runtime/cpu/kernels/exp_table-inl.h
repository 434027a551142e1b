// The core of exp: x = n ln 2 + r with n a multiple of 1/8. A short polynomial of r is then enough,
// and the table of 2^fraction(n) fits in one register. AVX2 and AVX-512 have the same bits.
// Not the special values of exp, nor bounds of x; callers handle those.
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

/// True if one instruction scales a vector by powers of two.
template <class D>
constexpr bool kHasScale = HWY_TARGET == HWY_AVX3 &&
                           (hn::MaxLanes(D()) == 16 || hn::MaxLanes(D()) == 8);

/// Returns table[i mod 8], where i is the integer in the low bits of the floats `at`.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V of_eight(D d, const float* table, V at) {
#if HWY_TARGET == HWY_AVX3
  if constexpr (hn::MaxLanes(d) == 16)
    return V{_mm512_permutexvar_ps(_mm512_castps_si512(at.raw),  // looks at four bits
                                   _mm512_broadcast_f32x8(_mm256_load_ps(table)))};
#endif
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
  if constexpr (hn::MaxLanes(d) == 8)
    return V{_mm256_permutevar8x32_ps(_mm256_load_ps(table), _mm256_castps_si256(at.raw))};
#endif
  const hn::RebindToSigned<D> di;
  return hn::GatherIndex(d, table, hn::And(hn::BitCast(di, at), hn::Set(di, 7)));
}

/// 1.5 * 2^20: a number to which it is added is rounded to eighths. `kEighths + bias` also adds a
/// bias to the exponent that power_f32() reads from the sum.
constexpr float kEighths = 1572864.0f;

/// Computes the parts of e^x for N vectors, interleaved. `magic` is kEighths plus an integer. Sets
/// `shifted` to n + magic and `y` to e^x / 2^floor(n), in (0.95, 1.92), within 0.61 ulp.
template <size_t N, class D, class V = hn::Vec<D>>
HWY_INLINE void exp_fractions_f32(D d, const V (&x)[N], V magic, V (&shifted)[N], V (&y)[N]) {
  // 2^(i / 8) as floats, and the relative corrections to the exact numbers.
  HWY_ALIGN static constexpr float kRoots[8] = {0x1p+0f,        0x1.172b84p+0f, 0x1.306fep+0f,
                                                0x1.4bfdaep+0f, 0x1.6a09e6p+0f, 0x1.8ace54p+0f,
                                                0x1.ae89fap+0f, 0x1.d5818ep+0f};
  HWY_ALIGN static constexpr float kLacks[8] = {
      0,               -0x1.9c0c22p-27f, 0x1.125002p-25f,  -0x1.0a355p-25f,
      0x1.26055cp-26f, 0x1.67a1cap-28f,  -0x1.f9c304p-27f, -0x1.a5217cp-28f};
  V n[N], r[N];
#pragma GCC unroll 4
  for (size_t k = 0; k < N; ++k) shifted[k] = hn::MulAdd(x[k], hn::Set(d, 1.44269504f), magic);
#pragma GCC unroll 4
  for (size_t k = 0; k < N; ++k) n[k] = hn::Sub(shifted[k], magic);
#pragma GCC unroll 4
  for (size_t k = 0; k < N; ++k) r[k] = hn::NegMulAdd(n[k], hn::Set(d, 0.693359375f), x[k]);
#pragma GCC unroll 4
  for (size_t k = 0; k < N; ++k) r[k] = hn::NegMulAdd(n[k], hn::Set(d, -2.12194440e-4f), r[k]);
#pragma GCC unroll 4
  for (size_t k = 0; k < N; ++k)
    y[k] = hn::MulAdd(r[k], hn::Set(d, 1.0f / 24), hn::Set(d, 1.0f / 6));
#pragma GCC unroll 4
  for (size_t k = 0; k < N; ++k) y[k] = hn::MulAdd(y[k], r[k], hn::Set(d, 0.5f));
#pragma GCC unroll 4
  for (size_t k = 0; k < N; ++k) y[k] = hn::MulAdd(y[k], r[k], hn::Set(d, 1.0f));
#pragma GCC unroll 4
  for (size_t k = 0; k < N; ++k) y[k] = hn::MulAdd(y[k], r[k], of_eight(d, kLacks, shifted[k]));
#pragma GCC unroll 4
  for (size_t k = 0; k < N; ++k) {
    const V root = of_eight(d, kRoots, shifted[k]);
    y[k] = hn::MulAdd(y[k], root, root);
  }
}

/// Returns 2^(floor(n) - 127 + bias), where `shifted` is n + (kEighths + bias).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V power_f32(D d, V shifted) {
  const hn::RebindToSigned<D> di;
  return hn::BitCast(d, hn::ShiftLeft<20>(hn::AndNot(hn::Set(di, 7), hn::BitCast(di, shifted))));
}

/// Returns e^x times 2^(bias - 127), where `magic` is kEighths + bias; 0 if x is less than `least`;
/// NaN for NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_by_power_f32(D d, float least, V x, V magic) {
  V shifted[1], y[1];
  exp_fractions_f32(d, {x}, magic, shifted, y);  // garbage for x far below `least`, which is masked
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, least)), hn::Mul(y[0], power_f32(d, shifted[0])));
}

#if HWY_TARGET == HWY_AVX3
/// Replaces each x by e^x, for x up to 89; 0 if x is less than `least`; NaN for NaN. Results below
/// that are not computed, as underflow takes some hundred cycles on Intel's processors.
template <size_t N, class D, class V = hn::Vec<D>>
HWY_INLINE void exps_from_f32(D d, float least, V (&x)[N]) {
  const V magic = hn::Set(d, kEighths);
  V shifted[N], y[N];
  exp_fractions_f32(d, x, magic, shifted, y);  // garbage for x far below `least`, which is masked
#pragma GCC unroll 4
  for (size_t k = 0; k < N; ++k) {
    const auto none = hn::Lt(x[k], hn::Set(d, least));
    const V n = hn::Sub(shifted[k], magic);
    if constexpr (hn::MaxLanes(d) == 16)
      x[k] = V{_mm512_maskz_scalef_ps(static_cast<__mmask16>(~none.raw), y[k].raw, n.raw)};
    else
      x[k] = V{_mm256_maskz_scalef_ps(static_cast<__mmask8>(~none.raw), y[k].raw, n.raw)};
  }
}
/// The same for one vector, which it returns.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_from_f32(D d, float least, V x) {
  V y[] = {x};
  exps_from_f32(d, least, y);
  return y[0];
}
#endif

}  // namespace stow::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
