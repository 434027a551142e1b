// The register micro-kernel: a few rows by two vectors of C from packed panels.
// Not a driver: it neither packs nor knows strides of A and B.
#if defined(STOW_KERNELS_GEMM_MICRO_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STOW_KERNELS_GEMM_MICRO_INL_H_
#undef STOW_KERNELS_GEMM_MICRO_INL_H_
#else
#define STOW_KERNELS_GEMM_MICRO_INL_H_
#endif

#include <hwy/highway.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

HWY_BEFORE_NAMESPACE();
namespace stow::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows of a panel of A: what fills the registers beside two vectors of B and one of A.
constexpr int kRows = HWY_TARGET <= HWY_AVX3 ? 12 : 6;
// Columns of a panel of B.
template <typename T>
constexpr int kCols = 2 * static_cast<int>(hn::MaxLanes(hn::ScalableTag<T>()));

/// out[r][j] = sum over k of a[k * kRows + r] * b[k * kCols + j], plus prev[r][j] if prev is given:
/// one accumulator an element, from zero, fma over k in order. Shapes: out and prev [R, kCols] with
/// row strides in elements; they may be the same.
template <int R, typename T>
HWY_NOINLINE void micro(int64_t kc, const T* HWY_RESTRICT a, const T* HWY_RESTRICT b, T* out,
                        ptrdiff_t out_stride, const T* prev, ptrdiff_t prev_stride) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int kLanes = kCols<T> / 2;
  V acc[R][2];
  HWY_UNROLL(16) for (int r = 0; r < R; ++r) {
    acc[r][0] = hn::Zero(d);
    acc[r][1] = hn::Zero(d);
    if (prev) {
      __builtin_prefetch(prev + r * prev_stride);
      __builtin_prefetch(prev + r * prev_stride + kLanes);
    }
  }
  for (int64_t k = 0; k < kc; ++k) {
    const V b0 = hn::Load(d, b), b1 = hn::Load(d, b + kLanes);
    HWY_UNROLL(16) for (int r = 0; r < R; ++r) {
      const V av = hn::Set(d, a[r]);
      acc[r][0] = hn::MulAdd(av, b0, acc[r][0]);
      acc[r][1] = hn::MulAdd(av, b1, acc[r][1]);
    }
    a += kRows;
    b += kCols<T>;
  }
  if (prev) {
    HWY_UNROLL(16) for (int r = 0; r < R; ++r) {
      acc[r][0] = hn::Add(hn::LoadU(d, prev + r * prev_stride), acc[r][0]);
      acc[r][1] = hn::Add(hn::LoadU(d, prev + r * prev_stride + kLanes), acc[r][1]);
    }
  }
  HWY_UNROLL(16) for (int r = 0; r < R; ++r) {
    hn::StoreU(acc[r][0], d, out + r * out_stride);
    hn::StoreU(acc[r][1], d, out + r * out_stride + kLanes);
  }
}

template <typename T>
using MicroFn = void (*)(int64_t, const T*, const T*, T*, ptrdiff_t, const T*, ptrdiff_t);

template <typename T, int... R>
constexpr std::array<MicroFn<T>, sizeof...(R)> micro_table(std::integer_sequence<int, R...>) {
  return {&micro<R + 1, T>...};
}
/// kMicro<T>[rows - 1] is the micro-kernel for that many rows.
template <typename T>
constexpr auto kMicro = micro_table<T>(std::make_integer_sequence<int, kRows>());

}  // namespace stow::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
