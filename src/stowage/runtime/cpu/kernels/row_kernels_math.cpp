#include "stowage/runtime/cpu/kernels/row_kernels.h"
#include "stowage/runtime/cpu/kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stowage/runtime/cpu/kernels/row_kernels_math.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "stowage/runtime/cpu/kernels/row_kernels_f32-inl.h"
#include "stowage/runtime/cpu/kernels/simd_math_rare-inl.h"

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
STOW_MATH1(RowTan, tan_f32)
STOW_MATH1(RowAsin, asin_f32)
STOW_MATH1(RowAcos, acos_f32)
STOW_MATH1(RowAtan, atan_f32)
STOW_MATH1(RowSinh, sinh_f32)
STOW_MATH1(RowCosh, cosh_f32)
STOW_MATH1(RowAsinh, asinh_f32)
STOW_MATH1(RowAcosh, acosh_f32)
STOW_MATH1(RowAtanh, atanh_f32)
STOW_MATH1(RowCbrt, cbrt_f32)
#undef STOW_MATH1
struct RowSqrt {
  HWY_INLINE VF operator()(DF, VF a) const { return hn::Sqrt(a); }
};
struct RowPow {
  HWY_INLINE VF operator()(DF d, VF a, VF b) const { return pow_f32(d, a, b); }
};
struct RowAtan2 {
  HWY_INLINE VF operator()(DF d, VF a, VF b) const { return atan2_f32(d, a, b); }
};
struct RowRem {
  HWY_INLINE VF operator()(DF d, VF a, VF b) const { return fmod_f32(d, a, b); }
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
  if (op == OpKind::kTan) return map_f32<RowTan, 1>;
  if (op == OpKind::kAsin) return map_f32<RowAsin, 1>;
  if (op == OpKind::kAcos) return map_f32<RowAcos, 1>;
  if (op == OpKind::kAtan) return map_f32<RowAtan, 1>;
  if (op == OpKind::kSinh) return map_f32<RowSinh, 1>;
  if (op == OpKind::kCosh) return map_f32<RowCosh, 1>;
  if (op == OpKind::kAsinh) return map_f32<RowAsinh, 1>;
  if (op == OpKind::kAcosh) return map_f32<RowAcosh, 1>;
  if (op == OpKind::kAtanh) return map_f32<RowAtanh, 1>;
  if (op == OpKind::kCbrt) return map_f32<RowCbrt, 1>;
  if (op == OpKind::kAtan2) return map_f32<RowAtan2, 2>;
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
