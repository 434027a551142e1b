// Rows of keys or queries without their infinities and NaN: where a probability of zero hides a row
// from some queries, its product with such a number would not be zero.
// Not arithmetic; nothing here depends on the instruction set.
#pragma once

#include <cmath>
#include <cstdint>

#include "stowage/core/dtype.h"

namespace stow::cpu {

/// One element of a tensor of a float dtype.
float float_at(DType dtype, const void* base, int64_t offset);

/// Location of n rows: element (i, d) is at base + origin + rows[i] + d * dim_stride elements.
struct RowSource {
  const void* base;
  int64_t origin, dim_stride;
  bool cleaned = false;
};

/// Returns where the rows are read with zeros for what is not finite: where they are, if all is finite.
/// Else marks those rows that have such numbers, copies all to `copy` [n, dims] and sets `rows` to
/// offsets there.
RowSource finite_rows(DType dtype, const RowSource& from, int64_t* rows, int64_t n, int64_t dims,
                      void* copy, uint8_t* marks);

/// True if none of n numbers is infinite or NaN.
bool all_finite(const float* x, int64_t n);

/// Calls add(d, x) for the elements x of a row that are not finite.
template <typename Add>
void each_infinite(DType dtype, const RowSource& from, int64_t row, int64_t dims, Add add) {
  for (int64_t d = 0; d < dims; ++d) {
    const float x = float_at(dtype, from.base, from.origin + row + d * from.dim_stride);
    if (!std::isfinite(x)) add(d, x);
  }
}

}  // namespace stow::cpu
