// A comparison and the choice that it makes in one pass over a tile; bounds on both sides; rows of
// one-hot. The bits are those of the single steps.
#include <algorithm>
#include <cstring>

#include "stowage/runtime/cpu/kernels/row_kernels_choose.h"
#include "stowage/runtime/cpu/kernels/simd_targets.h"

// A result may lie over an operand, element over element: no iteration reads what another writes.
#ifdef __clang__
#define STOW_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define STOW_INDEPENDENT _Pragma("GCC ivdep")
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stowage/runtime/cpu/kernels/row_kernels_choose.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "stowage/runtime/cpu/kernels/row_extremes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stow::cpu::HWY_NAMESPACE {

struct ChooseLt {
  HWY_INLINE VF operator()(DF, VF a, VF b, VF yes, VF no) const {
    return hn::IfThenElse(hn::Lt(a, b), yes, no);
  }
};
struct ChooseLe {
  HWY_INLINE VF operator()(DF, VF a, VF b, VF yes, VF no) const {
    return hn::IfThenElse(hn::Le(a, b), yes, no);
  }
};
struct ChooseEq {
  HWY_INLINE VF operator()(DF, VF a, VF b, VF yes, VF no) const {
    return hn::IfThenElse(hn::Eq(a, b), yes, no);
  }
};
MapKernel find_choose_f32(OpKind test) {
  if (test == OpKind::kLt) return map_f32<ChooseLt, 4>;
  if (test == OpKind::kLe) return map_f32<ChooseLe, 4>;
  if (test == OpKind::kEq) return map_f32<ChooseEq, 4>;
  return nullptr;
}

struct ClampFromBelow {
  HWY_INLINE VF operator()(DF, VF a, VF b, VF c) const { return min_f32(max_f32(a, b), c); }
};
struct ClampFromAbove {
  HWY_INLINE VF operator()(DF, VF a, VF b, VF c) const { return max_f32(min_f32(a, b), c); }
};
MapKernel find_clamp(OpKind outer) {
  if (outer == OpKind::kMin) return map_f32<ClampFromBelow, 3>;
  if (outer == OpKind::kMax) return map_f32<ClampFromAbove, 3>;
  return nullptr;
}

struct IsLt {
  static bool apply(int32_t a, int32_t b) { return a < b; }
};
struct IsLe {
  static bool apply(int32_t a, int32_t b) { return a <= b; }
};
struct IsEq {
  static bool apply(int32_t a, int32_t b) { return a == b; }
};

// Chooses between values of 32 bits. `kAdds`: arg 2 is added to arg 3 where it is chosen.
template <class Test, bool kAdds = false>
void choose_i32(const KernelCall& c) {
  constexpr int64_t kPart = 256;  // elements at a time: what a splat is written out for
  uint32_t splats[4][kPart];
  for (int64_t r = 0; r < c.rows; ++r) {
    const std::byte* data[4];
    int64_t mask[4];
    for (int k = 0; k < 4; ++k) {
      const KernelArg& arg = c.args[k];
      data[k] = arg.data + r * arg.row_step;
      mask[k] = arg.splat ? 0 : ~int64_t{0};
      if (!arg.splat) continue;
      uint32_t bits;
      std::memcpy(&bits, data[k], sizeof(bits));
      std::fill_n(splats[k], std::min(c.cols, kPart), bits);
      data[k] = reinterpret_cast<const std::byte*>(splats[k]);
    }
    auto* out = reinterpret_cast<uint32_t*>(c.out + r * c.out_row_step);
    for (int64_t i = 0; i < c.cols; i += kPart) {
      const int64_t n = std::min(kPart, c.cols - i);
      const auto* a = reinterpret_cast<const int32_t*>(data[0]) + (i & mask[0]);
      const auto* b = reinterpret_cast<const int32_t*>(data[1]) + (i & mask[1]);
      const auto* yes = reinterpret_cast<const uint32_t*>(data[2]) + (i & mask[2]);
      const auto* no = reinterpret_cast<const uint32_t*>(data[3]) + (i & mask[3]);
      uint32_t* to = out + i;
      STOW_INDEPENDENT
      for (int64_t k = 0; k < n; ++k) {
        const uint32_t x = yes[k], y = no[k];
        to[k] = Test::apply(a[k], b[k]) ? (kAdds ? x + y : x) : y;
      }
    }
  }
}
MapKernel find_choose_i32(OpKind test) {
  if (test == OpKind::kLt) return choose_i32<IsLt>;
  if (test == OpKind::kLe) return choose_i32<IsLe>;
  if (test == OpKind::kEq) return choose_i32<IsEq>;
  return nullptr;
}
MapKernel find_wrap() {
  return choose_i32<IsLt, true>;
}

}  // namespace stow::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stow::cpu {
namespace {

void one_hot(const KernelCall& c) {
  const KernelArg& position = c.args[0];
  for (int64_t r = 0; r < c.rows; ++r) {
    int32_t column;
    std::memcpy(&column, position.data + r * position.row_step, sizeof(column));
    auto* out = reinterpret_cast<float*>(c.out + r * c.out_row_step);
    std::memset(out, 0, static_cast<size_t>(c.cols) * sizeof(float));
    const int64_t i = column - c.first_col;
    if (0 <= i && i < c.cols) out[i] = 1;
  }
}

}  // namespace

HWY_EXPORT(find_choose_f32);
HWY_EXPORT(find_choose_i32);
HWY_EXPORT(find_wrap);
HWY_EXPORT(find_clamp);
MapKernel f32_choose_kernel(OpKind test) { return HWY_DYNAMIC_DISPATCH(find_choose_f32)(test); }
MapKernel i32_choose_kernel(OpKind test) { return HWY_DYNAMIC_DISPATCH(find_choose_i32)(test); }
MapKernel i32_wrap_kernel() { return HWY_DYNAMIC_DISPATCH(find_wrap)(); }
MapKernel f32_clamp_kernel(OpKind outer) { return HWY_DYNAMIC_DISPATCH(find_clamp)(outer); }
MapKernel f32_one_hot_kernel() { return one_hot; }

}  // namespace stow::cpu
#endif  // HWY_ONCE
