// The pass that moves a stack off the device if the result of its only readers is moved off it too.
// Not the sinking of those moves into the scans; sink_moves.h does that.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// Moves a stack to another memory, and back for its readers, if all its readers are elementwise
/// work whose result is moved to that memory. The stack is then moved off slice by slice
/// (sink_moves.h), and the work goes tile by tile (tiles.h). Example: the gradient of a tied
/// embedding on the host is the sum of the head's gradient, which a scan makes in blocks, and the
/// gradient of a gather; it is never whole on the device. More bytes are moved. Bits stay.
Graph spill_stacks(const Graph& graph);

}  // namespace stow
