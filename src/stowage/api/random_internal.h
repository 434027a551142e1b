// What the distributions share.
// Not public; see random.h.
#pragma once

#include "stowage/api/random.h"

namespace stow::random {

/// The key. Errors: TraceError if it is not u32[2].
Array check_key(const Operand& key);
/// The number of a float dtype next to -1, towards 0.
double after_minus_one(DType dtype);
/// The smallest normal number of a float dtype.
double smallest_normal(DType dtype);

}  // namespace stow::random
