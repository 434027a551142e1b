// The pass that merges equal work and drops what does nothing, before any plan is made.
// Not algebra on floats: the bits of every result stay.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/passes/dead_code.h"

namespace stow {

/// Merges nodes that do the same on the same operands, applies the rewrites of peephole.h, computes
/// what is only reversed from reversed operands, and then remove_dead_code, nested graphs included.
/// Only nodes of one region and one `backward` flag are merged, and never an optimization_barrier;
/// a merged node keeps the provenance of the first. Inputs, outputs, regions and marks stay. A pass
/// is linear in time; there is one, and one more each time that reverses give way.
///
/// For graphs that are differentiated already (a stop_gradient goes) and whose recomputation is not
/// yet realised (clones would merge again); after that, remove_dead_code alone.
Graph simplify(const Graph& graph);

}  // namespace stow
