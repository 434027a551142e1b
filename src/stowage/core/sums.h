// What of the order of sums a program may build on (docs/decisions/0003).
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

}  // namespace stow
