// The one order in which the parts of a collective reduction are put together.
// Not a transport: the parts lie in memory when this runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "stowage/core/dtype.h"
#include "stowage/core/reduce_kind.h"

namespace stow::comm {

/// True if the dtype has that reduction: sums of numbers, maxima and minima of all, and and or of bool
/// and integers.
bool can_reduce(ReduceKind kind, DType dtype);

/// Puts `n_elems` elements of every part together, element by element, and writes them to `out`, which
/// may be one of the parts.
///
/// The order is the balanced pairwise tree over the parts: n parts are the reduction of the first m, m
/// the largest power of two below n, and of the rest. Every node of the tree is rounded to `dtype`, for
/// bf16 and f16 from f32. So the tree over 8 parts is the tree over the results of 2 trees over 4, or of
/// 4 over 2, to the bit, however a group is factored into powers of two.
/// Integers wrap around. A maximum or minimum with a NaN is a NaN; -0 is less than +0.
void tree_reduce(ReduceKind kind, DType dtype, std::span<const std::byte* const> parts,
                 int64_t n_elems, std::byte* out);

}  // namespace stow::comm
