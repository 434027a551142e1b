// Copies of rows of keys or queries without their infinities and NaNs. The product of such a number
// with the zero probability of a hidden row would be NaN.
// Not arithmetic; nothing here depends on the instruction set.
#pragma once

#include <cmath>
#include <cstdint>

#include "stowage/core/dtype.h"

namespace stow::cpu {

/// Returns an element of a tensor of a float dtype; `offset` is in elements.
float float_at(DType dtype, const void* base, int64_t offset);

/// Location of n rows: element (i, d) is at base + origin + rows[i] + d * dim_stride elements.
struct RowSource {
  const void* base;
  int64_t origin, dim_stride;
  bool cleaned = false;  // a copy in which zeros replace numbers that are not finite
};

/// Returns a source of the rows without numbers that are not finite. That is `from` if there are
/// none. Else it copies the rows to `copy` [n, dims] with zeros instead of such numbers, and sets
/// `rows` to offsets there. In both cases sets marks[i] to 1 if row i has such numbers, else to 0.
RowSource finite_rows(DType dtype, const RowSource& from, int64_t* rows, int64_t n, int64_t dims,
                      void* copy, uint8_t* marks);

/// True if none of n numbers is infinite or NaN.
bool all_finite(const float* x, int64_t n);

/// Calls add(d, x) for each element x, at dim d, that is not finite in the row at offset `row`.
template <typename Add>
void each_infinite(DType dtype, const RowSource& from, int64_t row, int64_t dims, Add add) {
  for (int64_t d = 0; d < dims; ++d) {
    const float x = float_at(dtype, from.base, from.origin + row + d * from.dim_stride);
    if (!std::isfinite(x)) add(d, x);
  }
}

}  // namespace stow::cpu
