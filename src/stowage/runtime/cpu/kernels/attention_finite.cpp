#include "stowage/runtime/cpu/kernels/attention_finite.h"

#include <bit>

#include "stowage/core/half.h"

namespace stow::cpu {
namespace {

template <typename Use>
auto with_bits(DType dtype, Use use) {
  if (dtype == DType::kBF16) return use(uint16_t{}, uint16_t{0x7f80});
  if (dtype == DType::kF16) return use(uint16_t{}, uint16_t{0x7c00});
  return use(uint32_t{}, uint32_t{0x7f800000});
}

// True if a number of the row has all bits of its exponent set.
template <typename Bits>
bool has_infinite(const Bits* row, int64_t dims, int64_t stride, Bits exponent) {
  Bits found = 0;
  if (stride == 1) {
#pragma omp simd reduction(| : found)
    for (int64_t d = 0; d < dims; ++d)
      found |= static_cast<Bits>((row[d] & exponent) == exponent ? 1 : 0);
  } else {
    for (int64_t d = 0; d < dims; ++d)
      found |= static_cast<Bits>((row[d * stride] & exponent) == exponent ? 1 : 0);
  }
  return found != 0;
}

}  // namespace

float float_at(DType dtype, const void* base, int64_t offset) {
  if (dtype == DType::kBF16) return widen(static_cast<const Bf16*>(base)[offset]);
  if (dtype == DType::kF16) return widen(static_cast<const F16*>(base)[offset]);
  return static_cast<const float*>(base)[offset];
}

bool all_finite(const float* x, int64_t n) {
  return !has_infinite(reinterpret_cast<const uint32_t*>(x), n, 1, uint32_t{0x7f800000});
}

RowSource finite_rows(DType dtype, const RowSource& from, int64_t* rows, int64_t n, int64_t dims,
                      void* copy, uint8_t* marks) {
  return with_bits(dtype, [&]<typename Bits>(Bits, Bits exponent) -> RowSource {
    const Bits* const base = static_cast<const Bits*>(from.base) + from.origin;
    bool any = false;
    for (int64_t i = 0; i < n; ++i) {
      marks[i] = has_infinite(base + rows[i], dims, from.dim_stride, exponent);
      any |= marks[i] != 0;
    }
    if (!any) return from;
    Bits* const to = static_cast<Bits*>(copy);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t d = 0; d < dims; ++d) {
        const Bits x = base[rows[i] + d * from.dim_stride];
        to[i * dims + d] = (x & exponent) == exponent ? Bits{0} : x;
      }
      rows[i] = i * dims;
    }
    return {copy, 0, 1, true};
  });
}

}  // namespace stow::cpu
