// The passes that give a scan's body work that stands behind the scan, over what it stacks: each
// slice is worked on where it is made. Not the streaming of whole stacks; that is tiles.h.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// Where a scan moves the slices of a stack to the host or disk, and a reduction of other axes
/// reads the stack brought back, as it is or through elementwise work over it (a sum of squares),
/// the scan's body does that work on the slice before it leaves. So the norm of gradients that lie
/// on the host moves nothing. Rows are reduced as before: bits stay.
Graph sum_slices(const Graph& graph);

/// Where a stack is read by elementwise work alone that ends in results of the graph, and beside it
/// reads only arguments of the same shape and scalars that do not wait for the scan, that work is
/// done slice by slice in the scan's body, moves from and to other memories with it; reductions over
/// it that keep the slices apart too, and work on views of these, as on a scale of each row. So an
/// optimizer's update happens in the backward pass, layer by layer: the gradients of all layers are
/// never there together, and moments on the host come and go beside the computation. With clipping by
/// a norm of all gradients nothing can be done. In the bodies of scans too: a sum of gradients over
/// microbatches is added to where each slice is made. Bits stay.
Graph update_slices(const Graph& graph);

}  // namespace stow
