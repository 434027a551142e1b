// The pass that moves to the device only the parts of an array that are read there.
// Not slices by a scan; that is sink_into_scans.h.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// Moves each slice by itself if only slices are read of an array that is moved to the device, and
/// they are together no larger than the array. Weights of layers in a C++ loop then come layer by
/// layer, and a policy says which of them are kept or moved again. Bits stay.
Graph move_parts(const Graph& graph);

}  // namespace stow
