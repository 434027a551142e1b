// The pass that puts work over what lies on the host or disk beside a scan that it does not concern.
// Not the cutting of that work; that is tiles.h.
#pragma once

#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// The scan of the backward pass that computes most, products included; invalid where none has any.
NodeId busiest_backward_scan(const Graph& graph);

/// Which nodes neither need these, over any path, nor are needed by them; none of `nodes` itself.
std::vector<bool> independent_of(const Graph& graph, const std::vector<NodeId>& nodes);

/// Scans over tiles (tiles.h) that have as many iterations as the busiest scan of the backward pass
/// and neither wait for it, nor it for them, become part of it: an iteration of it does one of
/// theirs. So the update of a head whose gradient comes before those of the layers has its moves
/// beside their computation. Bits stay.
Graph merge_independent_scans(const Graph& graph);

}  // namespace stow
