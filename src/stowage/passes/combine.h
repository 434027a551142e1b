// Collectives of a local program that can be one.
// Not their order or overlap; that is the schedule's.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// Adds parts before they are summed over positions: a sum whose terms are all_reduces over one
/// group, each read by that sum alone, has one all_reduce for all of them. Other terms are added to
/// it. The order of the terms changes, and bits with it. Reduce_scatters stay: their parts would
/// wait for one another at n times the size. Nested graphs included; linear in time.
Graph combine_sums(const Graph& graph);

}  // namespace stow
