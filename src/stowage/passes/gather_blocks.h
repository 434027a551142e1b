// The pass that reads rows of an array elsewhere without the whole of it on the device.
// Not the sums of rows that are its gradient; those are of tiles.h.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// Gathers whole rows of an array that is moved to the device block by block, if nothing on the
/// device needs the whole array: a large embedding on the host. Each block gives the rows that it
/// has. A block has about `block_bytes`, or as many bytes as are gathered. An array of fewer than
/// four blocks stays as it is. As many bytes are moved as before. Bits stay.
Graph gather_by_blocks(const Graph& graph, int64_t block_bytes);

}  // namespace stow
