// The pass that moves to the device only the parts of an array that are read there.
// Not slices by a scan; that is sink_into_scans.h.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// Where nothing but slices is read of an array that is moved to the device, and they are no more
/// than the whole, each slice is moved by itself: weights of layers in a C++ loop come layer by
/// layer, and what is kept of them or moved again is for a policy to say. Bits stay.
Graph move_parts(const Graph& graph);

}  // namespace stow
