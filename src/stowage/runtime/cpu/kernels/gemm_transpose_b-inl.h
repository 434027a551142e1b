// The micro-kernel for few rows of C and columns of B that are runs of memory: it transposes square
// blocks of B in registers and packs nothing. Sums have the order of gemm_micro-inl.h.
// Not a driver: gemm_run-inl.h finds the columns.
#if defined(STOW_KERNELS_GEMM_TRANSPOSE_B_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STOW_KERNELS_GEMM_TRANSPOSE_B_INL_H_
#undef STOW_KERNELS_GEMM_TRANSPOSE_B_INL_H_
#else
#define STOW_KERNELS_GEMM_TRANSPOSE_B_INL_H_
#endif

#include <hwy/highway.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "stowage/runtime/cpu/kernels/gemm_micro-inl.h"
#include "stowage/runtime/cpu/kernels/gemm_pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stow::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Arguments of the micro-kernel. Strides are in elements.
struct TransposeBArgs {
  int64_t kc;                 // depth
  const float* a;             // a panel [kc, kRows]
  const float* const* b;      // kLanes columns of kc adjacent k; missing columns repeat the last
  const float* const* ahead;  // kLanes columns to prefetch
  float* out;                 // [R, cols]
  ptrdiff_t out_stride;
  const float* prev;          // addend of the sums, [R, cols]; may be out, or null
  ptrdiff_t prev_stride;
  int64_t cols;               // at most kLanes
};
using TransposeBFn = void (*)(const TransposeBArgs&);

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
/// out[r][j] = sum over k of a[k][r] * b[j][k], plus prev[r][j] if prev is not null, for R rows:
/// one accumulator for each element, from zero, fma over k in order.
template <int R>
HWY_NOINLINE void micro_transpose_b(const TransposeBArgs& args) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int kLanes = kLanesOf<float>;
  V acc[R];
  HWY_UNROLL(16) for (int r = 0; r < R; ++r) acc[r] = hn::Zero(d);
  const float* HWY_RESTRICT a = args.a;
  int64_t k = 0;
  for (; k + kLanes <= args.kc; k += kLanes, a += kLanes * kRows) {
    V square[kLanes];
    HWY_UNROLL(16) for (int j = 0; j < kLanes; ++j) {
      square[j] = hn::LoadU(d, args.b[j] + k);
      // Into L2: columns that are a power of two apart share a set of the L1 cache.
      __builtin_prefetch(args.ahead[j] + k, 0, 2);
    }
    transpose_square(d, square);
    HWY_UNROLL(16) for (int j = 0; j < kLanes; ++j) {
      HWY_UNROLL(16) for (int r = 0; r < R; ++r) {
        acc[r] = hn::MulAdd(hn::Set(d, a[j * kRows + r]), square[j], acc[r]);
      }
    }
  }
  HWY_ALIGN float row[kLanes];
  for (; k < args.kc; ++k, a += kRows) {
    for (int j = 0; j < kLanes; ++j) row[j] = args.b[j][k];
    const V v = hn::Load(d, row);
    HWY_UNROLL(16) for (int r = 0; r < R; ++r) acc[r] = hn::MulAdd(hn::Set(d, a[r]), v, acc[r]);
  }
  const auto mask = hn::FirstN(d, static_cast<size_t>(args.cols));
  HWY_UNROLL(16) for (int r = 0; r < R; ++r) {
    if (args.prev)
      acc[r] = hn::Add(hn::MaskedLoad(mask, d, args.prev + r * args.prev_stride), acc[r]);
    hn::BlendedStore(acc[r], mask, d, args.out + r * args.out_stride);
  }
}

template <int... R>
constexpr std::array<TransposeBFn, sizeof...(R)> transpose_b_table(
    std::integer_sequence<int, R...>) {
  return {&micro_transpose_b<R + 1>...};
}
/// kMicroTransposeB<float>[rows - 1]: the micro-kernel for that many rows.
template <typename T>
constexpr auto kMicroTransposeB = transpose_b_table(std::make_integer_sequence<int, kRows>());
#else
template <typename T>
constexpr std::array<TransposeBFn, kRows> kMicroTransposeB = {};  // there are none without vectors
#endif

}  // namespace stow::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
