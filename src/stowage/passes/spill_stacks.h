// The pass that sends stacks on the device to where what is made of them goes.
// Not the sinking of those moves into the scans; that is sink_moves.h.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// Where a stack that a scan makes is read by nothing but elementwise work whose result is moved away
/// from the device, the stack is moved there too, and back for that work: it leaves slice by slice
/// then, and the work goes tile by tile (tiles.h). So an embedding's gradient on the host that is the
/// sum of a head's, made block by block, and of a gather's is never whole on the device. More is moved.
/// Bits stay.
Graph spill_stacks(const Graph& graph);

}  // namespace stow
