// The pass that gathers rows of an array off the device without the whole array on the device.
// Not the sums of rows that are its gradient; tiles.h streams those.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// If an array is moved to the device only for gathers of whole rows, such as a large embedding on
/// the host, moves it block by block and takes from each block the rows that it has. A block has
/// about `block_bytes`, or as many bytes as are gathered if that is more. An array of fewer than
/// four blocks stays as it is. The number of moved bytes stays, and so do bits.
Graph gather_by_blocks(const Graph& graph, int64_t block_bytes);

}  // namespace stow
