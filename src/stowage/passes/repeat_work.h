// The pass that recomputes elementwise work over streamed arrays for readers that wait for a reduction.
// Not checkpointing, which is passes/residuals; no policy asks for this.
#pragma once

#include <string>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// Elementwise work over arrays that are moved to the device may have two readers: a reduction, and work
/// that waits for that reduction (an update that is scaled by its own norm). The second reader then makes
/// the work again from the arrays. Each use can go tile by tile (tiles.h), and nothing whole is kept in
/// between; the arrays are moved twice. Bits stay.
///
/// Work that was made again may have late readers in its turn: an update scaled by one norm after another.
/// After `most_rounds` such turns the rest stays as it is, and a sentence in `limits` says so.
Graph repeat_work(const Graph& graph, std::vector<std::string>& limits, int most_rounds = 8);

}  // namespace stow
