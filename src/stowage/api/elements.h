// Conversion of elements between dtypes on the host, for data that users pass in or read.
// Not a kernel: it is slow, and the convert op does not use it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "stowage/core/dtype.h"

namespace stow {

/// Converts `n` packed elements. Floats round to nearest even. A float becomes an integer by
/// truncation and saturation, NaN becomes 0. Values other than zero become true. Integers wrap.
void convert_elements(const void* from, DType from_dtype, void* to, DType to_dtype, int64_t n);

}  // namespace stow
