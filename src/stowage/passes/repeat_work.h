// The pass that recomputes streamed elementwise work for readers that wait for a reduction of it.
// Not checkpointing (passes/residuals); no policy controls this.
#pragma once

#include <string>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// Elementwise work over arrays that are moved to the device may have two readers: a reduction, and
/// work that depends on that reduction (an update that is scaled by its own norm). This pass
/// recomputes the work for the second reader. Each use can then go tile by tile (tiles.h), and no
/// whole array is kept in between; the arrays are moved twice. Bits stay.
///
/// Recomputed work may have two readers of this kind again: an update scaled by one norm after
/// another. After `most_rounds` rounds the rest stays as it is, and `limits` gets a sentence.
Graph repeat_work(const Graph& graph, std::vector<std::string>& limits, int most_rounds = 8);

}  // namespace stow
