// The pass that keeps on the device the residuals with the shortest round trip to another memory.
// Not the choice of how much; that is session/plan_search.
#pragma once

#include <cstdint>

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// The result of keep_resident().
struct KeptResident {
  Graph graph;
  int64_t bytes = 0;  ///< Bytes that are no longer moved.
};
/// Values that are moved off the device only to be read there again stay, counted from the last one that
/// leaves until they take `bytes`: the backward pass reads the last one first, so its round trip gains
/// least. They are single values and slices of residual stacks; the scans of both passes are cut in two at
/// the first slice that stays. Returns the graph unchanged if nothing fits. Bits stay.
KeptResident keep_resident(const Graph& graph, int64_t bytes);

}  // namespace stow
