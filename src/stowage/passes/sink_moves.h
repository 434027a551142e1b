// The pass that moves results piece by piece: a move of a stack becomes a move of each slice.
// Not the scheduling of moves, and not the moves that policies ask for.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// Moves a device_put of a stacked result into the scan's body, and a device_put of a concatenation
/// to its parts, also through reshapes, if no other node reads the moved value. A result that the
/// caller wants on the host, for example by out_shardings, is then never whole on the device. Bits
/// stay.
Graph sink_moves(const Graph& graph);

/// True if a value is a stacked result of a scan, but not a residual.
bool is_stacked(const Graph& graph, ValueId v);

}  // namespace stow
