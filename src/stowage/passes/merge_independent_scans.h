// The pass that merges scans over tiles into an independent scan, whose computation hides their moves.
// Not the cutting of that work; that is tiles.h.
#pragma once

#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// The scan of the backward pass that computes most, products included; invalid where none has any.
NodeId busiest_backward_scan(const Graph& graph);

/// By node, true if it neither depends on `nodes` nor they on it, over any path; false for `nodes`.
std::vector<bool> independent_of(const Graph& graph, const std::vector<NodeId>& nodes);

/// A scan over tiles (tiles.h) becomes part of the busiest scan of the backward pass if both have the same
/// number of iterations and neither depends on the other: an iteration then does one of each. Example: the
/// gradient of the head is there before those of the layers, so the moves of the head's update overlap with
/// the layers' computation. Bits stay.
Graph merge_independent_scans(const Graph& graph);

}  // namespace stow
