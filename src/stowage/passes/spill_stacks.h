// The pass that moves a stack off the device when the result of its only readers leaves as well.
// Not the sinking of those moves into the scans; that is sink_moves.h.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// A stack that a scan makes is moved to another memory, and back for its readers, if these are
/// elementwise work whose result is moved to that memory, and nothing else reads it. The stack then leaves
/// slice by slice (sink_moves.h), and the work goes tile by tile (tiles.h). Example: the gradient of a tied
/// embedding, on the host, is the sum of the head's gradient, which a scan makes in blocks, and of a
/// gather's; it is never whole on the device. More bytes are moved. Bits stay.
Graph spill_stacks(const Graph& graph);

}  // namespace stow
