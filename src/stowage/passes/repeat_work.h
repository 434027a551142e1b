// The pass that has elementwise work done again rather than keep what it made of streamed arrays.
// Not checkpointing, which is passes/residuals; nothing here was asked for by a policy.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// Where elementwise work over arrays that are moved to the device is read both by a reduction and
/// by what waits for that reduction (an update that is scaled by its own norm), the latter makes it
/// again from the arrays. Each use can then go tile by tile (tiles.h), and nothing whole is kept in
/// between; what it costs is that the arrays are moved once more. Bits stay.
Graph repeat_work(const Graph& graph);

}  // namespace stow
