// The pass that sums what leaves the device while it is still there: a reduction over a stack that a
// scan fills elsewhere becomes one of each slice.
// Not the streaming of what has left; that is tiles.h.
#pragma once

#include "stowage/ir/graph.h"

namespace stow {

/// Where a scan moves the slices of a stack to the host or disk, and a reduction of trailing axes
/// reads the stack brought back, as it is or through elementwise work over it (a sum of squares), the
/// scan's body does that work on the slice before it leaves. So the norm of gradients that lie on the
/// host moves nothing. Rows are reduced as before: bits stay.
Graph sum_slices(const Graph& graph);

}  // namespace stow
