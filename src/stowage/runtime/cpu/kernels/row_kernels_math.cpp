#include "stowage/runtime/cpu/kernels/row_kernels.h"
#include "stowage/runtime/cpu/kernels/row_scalar.h"
#include "stowage/runtime/cpu/kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stowage/runtime/cpu/kernels/row_kernels_math.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "stowage/runtime/cpu/kernels/row_kernels_f32-inl.h"
#include "stowage/runtime/cpu/kernels/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stow::cpu::HWY_NAMESPACE {

#define STOW_MATH1(Name, function)                                        \
  struct Name {                                                           \
    HWY_INLINE VF operator()(DF d, VF a) const { return function(d, a); } \
  };
STOW_MATH1(RowExp, exp_f32)
STOW_MATH1(RowExpm1, expm1_f32)
STOW_MATH1(RowLog, log_f32)
STOW_MATH1(RowLog1p, log1p_f32)
STOW_MATH1(RowTanh, tanh_f32)
STOW_MATH1(RowSin, sin_f32)
STOW_MATH1(RowCos, cos_f32)
STOW_MATH1(RowRsqrt, rsqrt_f32)
STOW_MATH1(RowLogistic, logistic_f32)
STOW_MATH1(RowErf, erf_f32)
STOW_MATH1(RowErfc, erfc_f32)
STOW_MATH1(RowErfInv, erf_inv_f32)
#undef STOW_MATH1
struct RowSqrt {
  HWY_INLINE VF operator()(DF, VF a) const { return hn::Sqrt(a); }
};
struct RowPow {
  HWY_INLINE VF operator()(DF d, VF a, VF b) const { return pow_f32(d, a, b); }
};
HWY_INLINE float libm_fmod(float a, float b) {
  return std::fmod(a, b);
}
struct RowRem {
  HWY_INLINE VF operator()(DF d, VF a, VF b) const {
    return patch_f32(d, hn::Eq(hn::Zero(d), hn::Zero(d)), a, a, b, libm_fmod);
  }
};

// The rarer functions.
template <OpKind K>
struct RowLibm1 {
  HWY_INLINE VF operator()(DF d, VF a) const { return libm1_f32<K>(d, a); }
};
template <OpKind K>
struct RowLibm2 {
  HWY_INLINE VF operator()(DF d, VF a, VF b) const { return libm2_f32<K>(d, a, b); }
};

MapKernel find_math(OpKind op) {
  if (op == OpKind::kExp) return map_f32<RowExp, 1>;
  if (op == OpKind::kExpm1) return map_f32<RowExpm1, 1>;
  if (op == OpKind::kLog) return map_f32<RowLog, 1>;
  if (op == OpKind::kLog1p) return map_f32<RowLog1p, 1>;
  if (op == OpKind::kTanh) return map_f32<RowTanh, 1>;
  if (op == OpKind::kSin) return map_f32<RowSin, 1>;
  if (op == OpKind::kCos) return map_f32<RowCos, 1>;
  if (op == OpKind::kSqrt) return map_f32<RowSqrt, 1>;
  if (op == OpKind::kRsqrt) return map_f32<RowRsqrt, 1>;
  if (op == OpKind::kLogistic) return map_f32<RowLogistic, 1>;
  if (op == OpKind::kErf) return map_f32<RowErf, 1>;
  if (op == OpKind::kErfc) return map_f32<RowErfc, 1>;
  if (op == OpKind::kErfInv) return map_f32<RowErfInv, 1>;
  if (op == OpKind::kPow) return map_f32<RowPow, 2>;
  if (op == OpKind::kRem) return map_f32<RowRem, 2>;
#define STOW_LIBM1(kind) \
  if (op == OpKind::kind) return map_f32<RowLibm1<OpKind::kind>, 1>;
  STOW_LIBM1(kTan)
  STOW_LIBM1(kAsin)
  STOW_LIBM1(kAcos)
  STOW_LIBM1(kAtan)
  STOW_LIBM1(kSinh)
  STOW_LIBM1(kCosh)
  STOW_LIBM1(kAsinh)
  STOW_LIBM1(kAcosh)
  STOW_LIBM1(kAtanh)
  STOW_LIBM1(kCbrt)
#undef STOW_LIBM1
  if (op == OpKind::kAtan2) return map_f32<RowLibm2<OpKind::kAtan2>, 2>;
  return nullptr;
}

}  // namespace stow::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stow::cpu {
HWY_EXPORT(find_math);
MapKernel f32_math_kernel(OpKind op) {
  return HWY_DYNAMIC_DISPATCH(find_math)(op);
}
}  // namespace stow::cpu
#endif  // HWY_ONCE
