// Summation orders that programs may rely on (docs/decisions/0003).
// Not the kernels that keep to it.
#pragma once

#include <cstdint>

namespace stow {

/// A product sums its contracted elements in blocks of so many, counted from the first, and then the
/// blocks in order. So a sum over chunks of that size, from the first on, has a product's bits.
inline constexpr int64_t kProductBlock = 256;

/// On some machines a product of f32 is computed in another way where rows, columns and contracted
/// elements are at least so many (gemm.h), with other bits. So parts of a product that are all at
/// least so large have its bits.
inline constexpr int64_t kProductLeast = 128;

/// Rows to add to the rest behind the last whole chunk of n rows, `chunk` at a time, so that a product
/// of the rest has the bits that a product of all rows at once has.
inline int64_t rows_to_fill(int64_t n, int64_t chunk) {
  const int64_t rest = n % chunk;
  const bool is_short = rest > 0 && rest < kProductLeast && n > chunk && chunk >= kProductLeast;
  return is_short ? kProductLeast - rest : 0;
}

}  // namespace stow
