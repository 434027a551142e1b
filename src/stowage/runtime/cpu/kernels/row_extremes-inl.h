// The larger and the smaller of two vectors of f32. Included once for each target, after
// row_kernels_f32-inl.h.
// Not the kernels; row_kernels_f32.cpp and row_kernels_choose.cpp have them.
// NOLINTNEXTLINE
#if defined(STOW_ROW_EXTREMES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STOW_ROW_EXTREMES_INL_H_
#undef STOW_ROW_EXTREMES_INL_H_
#else
#define STOW_ROW_EXTREMES_INL_H_
#endif

#include "stowage/runtime/cpu/kernels/row_kernels_f32-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stow::cpu::HWY_NAMESPACE {

/// Returns the larger number. NaN if either is, the first of two NaNs; +0 is above -0.
HWY_INLINE VF max_f32(VF a, VF b) {
#if HWY_TARGET <= HWY_AVX2
  const VF larger = hn::Max(a, b);  // b if both are zeros or one is a NaN
#else
  const VF larger = hn::IfThenElse(hn::Gt(a, b), a, b);
#endif
  const VF y = hn::IfThenElse(hn::Eq(a, b), hn::And(a, b), larger);
  return hn::IfThenElse(hn::IsNaN(a), a, y);
}
/// Returns the smaller number, likewise.
HWY_INLINE VF min_f32(VF a, VF b) {
#if HWY_TARGET <= HWY_AVX2
  const VF smaller = hn::Min(a, b);
#else
  const VF smaller = hn::IfThenElse(hn::Lt(a, b), a, b);
#endif
  const VF y = hn::IfThenElse(hn::Eq(a, b), hn::Or(a, b), smaller);
  return hn::IfThenElse(hn::IsNaN(a), a, y);
}

}  // namespace stow::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // STOW_ROW_EXTREMES_INL_H_
