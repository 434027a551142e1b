// Conversion of elements between dtypes on the host, for data that enters and leaves.
// Not a kernel: slow, and not what the convert op runs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "stowage/core/dtype.h"

namespace stow {

/// Converts `n` elements, row-major and packed. Floats round to nearest even; a float to an integer
/// truncates and saturates, NaN gives 0; to bool, whatever differs from zero is true; integers
/// wrap.
void convert_elements(const void* from, DType from_dtype, void* to, DType to_dtype, int64_t n);

}  // namespace stow
