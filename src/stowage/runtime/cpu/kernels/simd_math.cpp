#include "stowage/runtime/cpu/kernels/simd_math.h"

#include <cstring>

#include "stowage/base/error.h"
#include "stowage/runtime/cpu/kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stowage/runtime/cpu/kernels/simd_math.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "stowage/runtime/cpu/kernels/simd_math_rare-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stow::cpu::HWY_NAMESPACE {

template <class F>
void map_f32(const float* a, const float* b, float* out, int64_t n) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const F f;
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    hn::StoreU(f(d, hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, out + i);
  if (i == n) return;
  HWY_ALIGN float pad_a[hn::MaxLanes(d)] = {}, pad_b[hn::MaxLanes(d)] = {};
  const size_t bytes = static_cast<size_t>(n - i) * sizeof(float);
  std::memcpy(pad_a, a + i, bytes);
  std::memcpy(pad_b, b + i, bytes);
  hn::Store(f(d, hn::Load(d, pad_a), hn::Load(d, pad_b)), d, pad_a);
  std::memcpy(out + i, pad_a, bytes);
}

#define STOW_MATH1(Name, function)               \
  struct Name {                                  \
    template <class D, class V>                  \
    HWY_INLINE V operator()(D d, V a, V) const { \
      return function(d, a);                     \
    }                                            \
  };
STOW_MATH1(MapExp, exp_f32)
STOW_MATH1(MapExpm1, expm1_f32)
STOW_MATH1(MapLog, log_f32)
STOW_MATH1(MapLog1p, log1p_f32)
STOW_MATH1(MapTanh, tanh_f32)
STOW_MATH1(MapSin, sin_f32)
STOW_MATH1(MapCos, cos_f32)
STOW_MATH1(MapRsqrt, rsqrt_f32)
STOW_MATH1(MapLogistic, logistic_f32)
STOW_MATH1(MapErf, erf_f32)
STOW_MATH1(MapErfc, erfc_f32)
STOW_MATH1(MapErfInv, erf_inv_f32)
STOW_MATH1(MapTan, tan_f32)
STOW_MATH1(MapAsin, asin_f32)
STOW_MATH1(MapAcos, acos_f32)
STOW_MATH1(MapAtan, atan_f32)
STOW_MATH1(MapSinh, sinh_f32)
STOW_MATH1(MapCosh, cosh_f32)
STOW_MATH1(MapAsinh, asinh_f32)
STOW_MATH1(MapAcosh, acosh_f32)
STOW_MATH1(MapAtanh, atanh_f32)
STOW_MATH1(MapCbrt, cbrt_f32)
#undef STOW_MATH1
struct MapSqrt {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V) const {
    return hn::Sqrt(a);
  }
};
struct MapPow {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V a, V b) const {
    return pow_f32(d, a, b);
  }
};

struct MapAtan2 {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V a, V b) const {
    return atan2_f32(d, a, b);
  }
};
struct MapRem {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V a, V b) const {
    return fmod_f32(d, a, b);
  }
};

using MapFn = void (*)(const float*, const float*, float*, int64_t);

// The function of a math op, or null.
MapFn math_map_f32(OpKind op) {
  if (op == OpKind::kExp) return map_f32<MapExp>;
  if (op == OpKind::kExpm1) return map_f32<MapExpm1>;
  if (op == OpKind::kLog) return map_f32<MapLog>;
  if (op == OpKind::kLog1p) return map_f32<MapLog1p>;
  if (op == OpKind::kTanh) return map_f32<MapTanh>;
  if (op == OpKind::kSin) return map_f32<MapSin>;
  if (op == OpKind::kCos) return map_f32<MapCos>;
  if (op == OpKind::kSqrt) return map_f32<MapSqrt>;
  if (op == OpKind::kRsqrt) return map_f32<MapRsqrt>;
  if (op == OpKind::kLogistic) return map_f32<MapLogistic>;
  if (op == OpKind::kErf) return map_f32<MapErf>;
  if (op == OpKind::kErfc) return map_f32<MapErfc>;
  if (op == OpKind::kErfInv) return map_f32<MapErfInv>;
  if (op == OpKind::kPow) return map_f32<MapPow>;
  if (op == OpKind::kTan) return map_f32<MapTan>;
  if (op == OpKind::kAsin) return map_f32<MapAsin>;
  if (op == OpKind::kAcos) return map_f32<MapAcos>;
  if (op == OpKind::kAtan) return map_f32<MapAtan>;
  if (op == OpKind::kSinh) return map_f32<MapSinh>;
  if (op == OpKind::kCosh) return map_f32<MapCosh>;
  if (op == OpKind::kAsinh) return map_f32<MapAsinh>;
  if (op == OpKind::kAcosh) return map_f32<MapAcosh>;
  if (op == OpKind::kAtanh) return map_f32<MapAtanh>;
  if (op == OpKind::kCbrt) return map_f32<MapCbrt>;
  if (op == OpKind::kAtan2) return map_f32<MapAtan2>;
  if (op == OpKind::kRem) return map_f32<MapRem>;
  return nullptr;
}

}  // namespace stow::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stow::cpu {

HWY_EXPORT(math_map_f32);

bool is_math_op(OpKind op) {
  return HWY_DYNAMIC_DISPATCH(math_map_f32)(op) != nullptr;
}

bool is_binary_math_op(OpKind op) {
  return op == OpKind::kPow || op == OpKind::kAtan2 || op == OpKind::kRem;
}

void apply_math_f32(OpKind op, const float* a, const float* b, float* out, int64_t n) {
  const auto map = HWY_DYNAMIC_DISPATCH(math_map_f32)(op);
  STOW_CHECK(map != nullptr, "{}", op_name(op));
  map(a, is_binary_math_op(op) ? b : a, out, n);
}

}  // namespace stow::cpu
#endif  // HWY_ONCE
