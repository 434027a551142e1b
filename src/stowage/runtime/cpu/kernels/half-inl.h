// Vector loads that widen bf16 and f16 to f32, and stores that round back, per Highway target.
// Not scalar conversions; those are in core/half.h, with the same results.
#if defined(STOW_KERNELS_HALF_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STOW_KERNELS_HALF_INL_H_
#undef STOW_KERNELS_HALF_INL_H_
#else
#define STOW_KERNELS_HALF_INL_H_
#endif

#include <hwy/highway.h>

#include "stowage/core/half.h"

HWY_BEFORE_NAMESPACE();
namespace stow::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// True if the target has vectors with FMA and the conversions below; the fallback is scalar code.
constexpr bool kHasSimd = HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128;

// Returns the elements at p as a vector of tag d; bf16 and f16 are widened to f32.
template <class D>
HWY_INLINE hn::Vec<D> load_wide(D d, const hn::TFromD<D>* HWY_RESTRICT p) {
  return hn::LoadU(d, p);
}

// Writes v at p, rounded to the type of its elements as narrow() does.
template <class D>
HWY_INLINE void store_narrow(hn::Vec<D> v, D d, hn::TFromD<D>* HWY_RESTRICT p) {
  hn::StoreU(v, d, p);
}

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

template <class D>
HWY_INLINE hn::Vec<D> load_wide(D d, const Bf16* HWY_RESTRICT p) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<uint32_t, D> d32;
  const auto v = hn::PromoteTo(d32, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p)));
  return hn::BitCast(d, hn::ShiftLeft<16>(v));
}

template <class D>
HWY_INLINE hn::Vec<D> load_wide(D d, const F16* HWY_RESTRICT p) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<hwy::float16_t, D> df16;
  return hn::PromoteTo(
      d, hn::BitCast(df16, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p))));
}

template <class D>
HWY_INLINE void store_narrow(hn::Vec<D> v, D d, Bf16* HWY_RESTRICT p) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<uint32_t, D> d32;
  const auto u = hn::BitCast(d32, v);
  const auto high = hn::ShiftRight<16>(u);
  const auto odd = hn::And(high, hn::Set(d32, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(u, hn::Set(d32, 0x7fffu)), odd));
  const auto quiet = hn::Or(high, hn::Set(d32, 0x40u));
  const auto nan = hn::RebindMask(d32, hn::IsNaN(v));
  const auto bits = hn::IfThenElse(nan, quiet, rounded);
  const hn::Rebind<int32_t, D> di32;
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di32, bits)), d16, reinterpret_cast<uint16_t*>(p));
}

template <class D>
HWY_INLINE void store_narrow(hn::Vec<D> v, D d, F16* HWY_RESTRICT p) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<hwy::float16_t, D> df16;
  (void)d;
  hn::StoreU(hn::BitCast(d16, hn::DemoteTo(df16, v)), d16, reinterpret_cast<uint16_t*>(p));
}

#endif

}  // namespace stow::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
