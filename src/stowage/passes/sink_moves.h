// The pass that moves results piece by piece: a move of a stack becomes a move of each slice.
// Not the scheduling of moves, and not the moves that policies ask for.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// A device_put of what a scan stacks goes into the scan's body, one of a concatenation to its parts,
/// through reshapes too, wherever nothing else reads what is moved. So a result that is asked for on
/// the host, as by out_shardings, is never whole on the device. Bits stay.
Graph sink_moves(const Graph& graph);

/// True if a value is a stacked result of a scan, residuals aside.
bool is_stacked(const Graph& graph, ValueId v);

}  // namespace stow
