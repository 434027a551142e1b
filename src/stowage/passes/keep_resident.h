// The pass that keeps on the device the residuals with the shortest round trip to another memory.
// Not the choice of how many bytes; session/plan_search makes it.
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
/// Keeps values on the device that are moved off it only to be read there again, up to `bytes` in
/// all. It begins with the value that leaves last: the backward pass reads it first, so its offload
/// saves memory for the shortest time. The values are single values and slices of residual stacks;
/// the forward and the backward scan are cut in two at the first slice that stays. Returns the
/// graph unchanged if nothing fits. Bits stay.
KeptResident keep_resident(const Graph& graph, int64_t bytes);

}  // namespace stow
