// The pass that merges scans over tiles into an independent scan, whose work hides their moves.
// Not the cutting of work into tiles; tiles.h does that.
#pragma once

#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// Returns the scan of the backward pass with the most FLOPs, among those with a product; invalid
/// if there is none.
NodeId busiest_backward_scan(const Graph& graph);

/// By node, true if there is no path between it and `nodes` in either direction; false for `nodes`.
std::vector<bool> independent_of(const Graph& graph, const std::vector<NodeId>& nodes);

/// Merges scans over tiles (tiles.h) into the busiest scan of the backward pass, if they have the
/// same number of iterations and neither depends on the other: each iteration then does one
/// iteration of each. Example: the gradient of the head is ready before those of the layers, so the
/// moves of the head's update overlap with the layers' computation. Bits stay.
Graph merge_independent_scans(const Graph& graph);

}  // namespace stow
