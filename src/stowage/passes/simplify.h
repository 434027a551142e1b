// The pass that merges equal work and removes nodes without effect, before any plan is made.
// Not algebra on floats: the bits of every result stay.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/passes/dead_code.h"

namespace stow {

/// Merges nodes with equal operations and operands, applies the rewrites of peephole.h, moves
/// reverses to the operands of values that are read only in reverse, and calls remove_dead_code.
/// Nested graphs included. Merges only nodes of one region and one `backward` flag, and never an
/// optimization_barrier; the merged node has the provenance of the first. Inputs, outputs, regions
/// and flags stay. One traversal takes linear time; each removal of reverses causes another
/// traversal.
///
/// The graph must be differentiated already (a stop_gradient is removed), and its recomputation not
/// yet realised (clones would be merged again). After that, use remove_dead_code.
Graph simplify(const Graph& graph);

}  // namespace stow
