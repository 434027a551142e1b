// The pass that moves to the device only the parts of an array that are read there.
// Not for slices that a scan reads; sink_into_scans.h moves those.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// If only slices of an array that is moved to the device are read, and together they are no larger
/// than the array, moves each slice instead. Weights of layers in a C++ loop are then moved layer
/// by layer, and a policy can keep each or move it again. Bits stay.
Graph move_parts(const Graph& graph);

}  // namespace stow
