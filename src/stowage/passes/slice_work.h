// The passes that give a scan's body work that stands behind the scan, over what it stacks: each
// slice is worked on where it is made. Not the streaming of whole stacks; that is tiles.h.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// Moves reductions of a stack into the body of the scan that makes it, before the slices leave for
/// the host or disk. The reductions are of other axes than the stacked one, and read the stack
/// brought back, as it is or through elementwise work over it (a sum of squares). The norm of
/// gradients on the host then moves nothing. Rows are reduced as before: bits stay.
Graph sum_slices(const Graph& graph);

/// Does elementwise work on a stack slice by slice in the scan's body, with its moves from and to
/// other memories. Such work alone reads the stack. The work ends in results of the graph, and
/// beside the stack reads only arguments of the same shape and scalars that do not wait for the
/// scan. Reductions over it that keep the slices apart go into the body too, and work on views of
/// these, as on a scale of each row. An optimizer's update then happens in the backward pass, layer
/// by layer: the gradients of all layers are never there together, and moments on the host come and
/// go beside the computation. Clipping by a norm of all gradients prevents this. Bodies of scans
/// are rewritten too: a sum of gradients over microbatches is added to where each slice is made.
/// Bits stay.
Graph update_slices(const Graph& graph);

}  // namespace stow
