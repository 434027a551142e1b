// Summation orders that programs may rely on (docs/decisions/0003).
// Not the kernels that implement them.
#pragma once

#include <cstdint>

namespace stow {

/// Number of contracted elements in a block of a product's sum. A product sums each block, then
/// adds the blocks in order. A sum over chunks of this size therefore has the bits of the whole
/// product.
inline constexpr int64_t kProductBlock = 256;

/// Smallest extent of large products. On some machines, f32 products whose rows, columns and
/// contracted extent are all at least this large use another algorithm (gemm.h) with other bits.
/// The parts of a large product have its bits if their extents are at least this large, too.
inline constexpr int64_t kProductLeast = 128;

/// Number of rows by which to pad the last, incomplete chunk of n rows cut into chunks of `chunk`,
/// so that its product has the bits of the product of all rows. 0 if no padding is needed.
inline int64_t rows_to_fill(int64_t n, int64_t chunk) {
  const int64_t rest = n % chunk;
  const bool is_short = rest > 0 && rest < kProductLeast && n > chunk && chunk >= kProductLeast;
  return is_short ? kProductLeast - rest : 0;
}

}  // namespace stow
