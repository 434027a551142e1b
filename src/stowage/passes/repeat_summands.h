// The pass that repeats elementwise work for each reduction that reads it.
// Not fusion: fuse.h makes one program of each reduction and the work that it alone reads.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// Repeats elementwise work over much smaller arrays, such as the difference of all pairs of rows,
/// for each kind of reduction that reads it. Reductions over different axes cannot be one program,
/// so a shared result would have to be stored. An expensive op, such as an exponential, whose
/// result fits into a near cache is not repeated. Bits stay. Nested graphs included.
Graph repeat_summands(const Graph& graph);

}  // namespace stow
