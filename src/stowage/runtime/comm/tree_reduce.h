// tree_reduce: combines the parts of a collective reduction in one fixed order.
// Not a transport: all parts are in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "stowage/core/dtype.h"
#include "stowage/core/reduce_kind.h"

namespace stow::comm {

/// True if `kind` is defined for `dtype`: sums for all but bool, maxima and minima for all dtypes,
/// and and or for bool and integers.
bool can_reduce(ReduceKind kind, DType dtype);

/// Reduces `n_elems` elements of every part, element by element, and writes them to `out`, which
/// may be one of the parts.
///
/// The order is the balanced pairwise tree over the parts: n parts are the reduction of the first
/// m, m the largest power of two below n, combined with that of the other n - m. Every node of the
/// tree is rounded to `dtype`; bf16 and f16 are added in f32. The tree over 8 parts thus has the
/// bits of the tree over the results of 2 trees over 4 parts, or of 4 trees over 2: the factoring
/// of a group into powers of two does not matter. Integers wrap around. A maximum or minimum with a
/// NaN is a NaN; -0 is less than +0.
void tree_reduce(ReduceKind kind, DType dtype, std::span<const std::byte* const> parts,
                 int64_t n_elems, std::byte* out);

}  // namespace stow::comm
