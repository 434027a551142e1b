// exp for softmax: vectors of f32, within 2 ulp, zero below 2^-126, NaN stays NaN.
// Not the general exp: the argument may not exceed 88, since scores come with their maximum off.
#if defined(STOW_KERNELS_ATTENTION_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STOW_KERNELS_ATTENTION_EXP_INL_H_
#undef STOW_KERNELS_ATTENTION_EXP_INL_H_
#else
#define STOW_KERNELS_ATTENTION_EXP_INL_H_
#endif

#include <hwy/highway.h>
#include "stowage/runtime/cpu/kernels/exp_table-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stow::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D, class V = hn::Vec<D>>
HWY_INLINE V softmax_exp(D d, V x) {
  constexpr float kLeast = -87.3f;
#if HWY_TARGET == HWY_AVX3
  if constexpr (kHasScale<D>) return exp_from_f32(d, kLeast, x);
#endif
  const hn::RebindToSigned<D> di;
  V shifted;
  const V y = exp_fraction_f32(d, x, shifted);
  // floor(n), in place.
  const auto exponent = hn::ShiftLeft<20>(hn::AndNot(hn::Set(di, 7), hn::BitCast(di, shifted)));
  const V scaled = hn::BitCast(d, hn::Add(hn::BitCast(di, y), exponent));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, kLeast)), hn::IfThenElse(hn::Eq(x, x), scaled, x));
}

}  // namespace stow::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
