// The pass that leaves on the device what would come back to it soonest.
// Not the choice of how much; that is session/plan_search.
#pragma once

#include <cstdint>

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// What keep_resident() makes of a graph.
struct KeptResident {
  Graph graph;
  int64_t bytes = 0;  ///< That neither leave nor come back.
};
/// What is moved away only to be read on the device again, and leaves last, is what the backward pass
/// begins with: its round trip is the least use. As much of it as `bytes` hold, counted from the last,
/// stays where it is: single values, and slices of residual stacks, the scans of both passes cut in two
/// at the first of them. The graph as it is where that is nothing. Bits stay.
KeptResident keep_resident(const Graph& graph, int64_t bytes);

}  // namespace stow
