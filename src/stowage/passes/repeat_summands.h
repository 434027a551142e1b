// The pass that repeats elementwise work for each reduction of it.
// Not fusion; fuse.h makes one program of each reduction and the work that it alone reads.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// The graph with elementwise work over much smaller arrays, such as a difference of all pairs of rows,
/// made once for each kind of reduction that reads it: reductions over different axes cannot be one
/// program, and what they share would have to be stored. A function, such as an exponential, over what near
/// caches hold is stored all the same. Bits stay. Nested graphs too.
Graph repeat_summands(const Graph& graph);

}  // namespace stow
