// exp for softmax: vectors of f32, within 2 ulp, zero below 2^-126, NaN stays NaN.
// Not the general exp: x may not exceed 88, as scores have their maximum subtracted.
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
  return exp_by_power_f32(d, kLeast, x, hn::Set(d, kEighths + 127));
}

}  // namespace stow::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
