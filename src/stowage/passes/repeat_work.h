// The pass that has elementwise work done again rather than keep what it made of streamed arrays.
// Not checkpointing, which is passes/residuals; nothing here was asked for by a policy.
#pragma once

#include <string>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// Where elementwise work over arrays that are moved to the device is read both by a reduction and
/// by what waits for that reduction (an update that is scaled by its own norm), the latter makes it
/// again from the arrays. Each use can then go tile by tile (tiles.h), and nothing whole is kept in
/// between; what it costs is that the arrays are moved once more. Bits stay.
///
/// What was repeated may have late readers in its turn: an update scaled by one norm after another.
/// After `most_rounds` such turns the rest stays as it is, and a sentence in `limits` says so.
Graph repeat_work(const Graph& graph, std::vector<std::string>& limits, int most_rounds = 8);

}  // namespace stow
