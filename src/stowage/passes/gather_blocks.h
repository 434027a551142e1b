// The pass that reads rows of an array elsewhere without the whole of it on the device.
// Not the sums of rows that are its gradient; those are of tiles.h.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// Where whole rows are gathered from an array that is moved to the device, and nothing there needs
/// it whole, the array goes through block by block and each block gives the rows that it has: a large
/// embedding on the host. Blocks are of near `block_bytes`, or as large as what is gathered; what
/// has fewer than four stays. As much is moved as before. Bits stay.
Graph gather_by_blocks(const Graph& graph, int64_t block_bytes);

}  // namespace stow
