// Stores of attention's panels of f32 into tensors of f32, bf16 or f16 with any strides.
// Not arithmetic, except for one factor.
#if defined(STOW_KERNELS_ATTENTION_STORE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STOW_KERNELS_ATTENTION_STORE_INL_H_
#undef STOW_KERNELS_ATTENTION_STORE_INL_H_
#else
#define STOW_KERNELS_ATTENTION_STORE_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "stowage/runtime/cpu/kernels/gemm_pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stow::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// dst[offsets[c] + d * d_stride] = panel[d * W + c], rounded, for c < w and d < dims.
template <int W, typename S>
HWY_NOINLINE void store_columns(const float* panel, int64_t w, int64_t dims, S* dst,
                                const int64_t* offsets, int64_t d_stride) {
  int64_t c = 0;
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  const hn::FixedTag<float, 4> d4;
  const int64_t whole = d_stride == 1 ? dims / 4 * 4 : 0;
  for (; c + 4 <= w && whole > 0; c += 4) {
    S* const to[4] = {dst + offsets[c], dst + offsets[c + 1], dst + offsets[c + 2],
                      dst + offsets[c + 3]};
    int64_t d = 0;
    for (; d < whole; d += 4) {
      const float* from = panel + d * W + c;
      auto v0 = hn::LoadU(d4, from), v1 = hn::LoadU(d4, from + W);
      auto v2 = hn::LoadU(d4, from + 2 * W), v3 = hn::LoadU(d4, from + 3 * W);
      transpose_4x4(d4, v0, v1, v2, v3);
      store_narrow(v0, d4, to[0] + d);
      store_narrow(v1, d4, to[1] + d);
      store_narrow(v2, d4, to[2] + d);
      store_narrow(v3, d4, to[3] + d);
    }
    for (; d < dims; ++d)
      for (int i = 0; i < 4; ++i) narrow(panel[d * W + c + i], to[i][d]);
  }
#endif
  for (; c < w; ++c)
    for (int64_t d = 0; d < dims; ++d) narrow(panel[d * W + c], dst[offsets[c] + d * d_stride]);
}

// store_columns() to the tensor at `base` + `offset` elements, of dtype t: bf16, f16, else f32.
template <int W>
void store_columns(DType t, const float* panel, int64_t w, int64_t dims, void* base, int64_t offset,
                   const int64_t* offsets, int64_t d_stride) {
  if (t == DType::kBF16)
    return store_columns<W>(panel, w, dims, static_cast<Bf16*>(base) + offset, offsets, d_stride);
  if (t == DType::kF16)
    return store_columns<W>(panel, w, dims, static_cast<F16*>(base) + offset, offsets, d_stride);
  store_columns<W>(panel, w, dims, static_cast<float*>(base) + offset, offsets, d_stride);
}

// dst[d * d_stride] = factor * row[d], rounded, for d < dims.
template <typename S>
void store_row(const float* row, int64_t dims, float factor, S* dst, int64_t d_stride) {
  for (int64_t d = 0; d < dims; ++d) narrow(row[d] * factor, dst[d * d_stride]);
}

// store_row() to the tensor at `base` + `offset` elements, of dtype t: bf16, f16, else f32.
inline void store_row(DType t, const float* row, int64_t dims, float factor, void* base,
                      int64_t offset, int64_t d_stride) {
  if (t == DType::kBF16)
    return store_row(row, dims, factor, static_cast<Bf16*>(base) + offset, d_stride);
  if (t == DType::kF16)
    return store_row(row, dims, factor, static_cast<F16*>(base) + offset, d_stride);
  store_row(row, dims, factor, static_cast<float*>(base) + offset, d_stride);
}

}  // namespace stow::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
