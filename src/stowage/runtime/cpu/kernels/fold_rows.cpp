#include "stowage/runtime/cpu/kernels/fold_rows.h"

#include "stowage/runtime/cpu/kernels/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stowage/runtime/cpu/kernels/fold_rows.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "stowage/runtime/cpu/kernels/fold-inl.h"

#ifdef __clang__
#define STOW_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define STOW_INDEPENDENT _Pragma("GCC ivdep")
#endif

HWY_BEFORE_NAMESPACE();
namespace stow::cpu::HWY_NAMESPACE {

// Floats a vector at a time; the compiler makes vectors of the integers.
template <typename Op, typename T>
void fold_row(void* to_row, const void* from_row, int64_t n) {
  auto* to = static_cast<T*>(to_row);
  const auto* from = static_cast<const T*>(from_row);
  int64_t i = 0;
  if constexpr (kHasSimd && std::is_floating_point_v<Acc<T>>) {
    const hn::ScalableTag<Acc<T>> d;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    for (; i + lanes <= n; i += lanes)
      store_narrow(Op::steps(load_wide(d, to + i), load_wide(d, from + i)), d, to + i);
  }
  STOW_INDEPENDENT
  for (int64_t k = i; k < n; ++k) store_lane(Op::step(load_lane(to[k]), load_lane(from[k])), to[k]);
}

template <typename T>
FoldRowKernel fold_row_of(OpKind op) {
  using A = Acc<T>;
  if (op == OpKind::kScatterAdd) return fold_row<SumOf<A>, T>;
  if (op == OpKind::kScatterMul) return fold_row<ProductOf<A>, T>;
  if (op == OpKind::kScatterMax) return fold_row<MaxOf<A>, T>;
  if (op == OpKind::kScatterMin) return fold_row<MinOf<A>, T>;
  return nullptr;
}
FoldRowKernel find_fold_row(OpKind op, DType dtype) {
  return kernels::with_dtype(dtype, [&](auto t) { return fold_row_of<decltype(t)>(op); });
}

}  // namespace stow::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stow::cpu {

HWY_EXPORT(find_fold_row);

FoldRowKernel fold_row_kernel(OpKind op, DType dtype) {
  return HWY_DYNAMIC_DISPATCH(find_fold_row)(op, dtype);
}

}  // namespace stow::cpu
#endif
