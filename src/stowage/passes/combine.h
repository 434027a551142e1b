// Collectives of a local program that can be one.
// Not their order or overlap; that is the schedule's.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// Adds parts before they are summed over positions: a sum of two values that are each reduced over one
/// group, and that nothing else reads, is the reduction of a sum. So is a sum of more, added two by two.
/// Saves one of two all_reduces or reduce_scatters each time; the order of the terms changes, and bits
/// with it. Nested graphs included; linear in time.
Graph combine_sums(const Graph& graph);

}  // namespace stow
