// exp for softmax: vectors of f32, within 2 ulp, zero below 2^-126, NaN stays NaN.
// Not the general exp: the argument may not exceed 88, since scores come with their maximum off.
#if defined(STOW_KERNELS_ATTENTION_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STOW_KERNELS_ATTENTION_EXP_INL_H_
#undef STOW_KERNELS_ATTENTION_EXP_INL_H_
#else
#define STOW_KERNELS_ATTENTION_EXP_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace stow::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// e^x = 2^n e^r with n = round(x / ln 2) and |r| <= ln 2 / 2; polynomial of Cephes' expf.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V softmax_exp(D d, V x) {
  const hn::RebindToSigned<D> di;
  const V magic = hn::Set(d, 12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const V t = hn::MulAdd(x, hn::Set(d, 1.44269504f), magic);
  const V n = hn::Sub(t, magic);
  V r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  V p = hn::Set(d, 1.9875691500e-4f);
  p = hn::MulAdd(p, r, hn::Set(d, 1.3981999507e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 8.3334519073e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.1665795894e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.6666665459e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 5.0000001201e-1f));
  p = hn::Add(hn::MulAdd(p, hn::Mul(r, r), r), hn::Set(d, 1.0f));
  const auto exponent = hn::ShiftLeft<23>(hn::BitCast(di, t));  // n, in place
  const V scaled = hn::BitCast(d, hn::Add(hn::BitCast(di, p), exponent));
  const V y = hn::IfThenElse(hn::Eq(x, x), scaled, x);
  return hn::IfThenElse(hn::Lt(x, hn::Set(d, -87.3f)), hn::Zero(d), y);
}

}  // namespace stow::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
