// The passes that move work on a scan's stacked results into its body, slice by slice.
// Not the streaming of whole stacks; tiles.h does that.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// Moves reductions of a stack into the body of the scan that makes it, before the slices are moved
/// to the host or disk. The reductions are over axes other than the stacked one, and read the stack
/// after it was moved back, directly or through elementwise work (a sum of squares). The norm of
/// gradients on the host then needs no moves. Rows are reduced as before, so bits stay.
Graph sum_slices(const Graph& graph);

/// Moves elementwise work on a stack into the body of the scan that makes it, slice by slice, with
/// its moves between memories. Only this work may read the stack. It must end in results of the
/// graph, and besides the stack read only arguments of the same shape and scalars that do not
/// depend on the scan. Reductions of it that do not reduce the stacked axis are moved too, and work
/// on views of their results, such as a scale of each row. An optimizer's update then happens in
/// the backward pass, layer by layer: the gradients of all layers never exist together, and moves
/// of moments on the host overlap with the computation. Clipping by a norm of all gradients
/// prevents this. Bodies of scans are rewritten too: each slice of a gradient is added to the sum
/// over microbatches where it is made. Bits stay.
Graph update_slices(const Graph& graph);

}  // namespace stow
