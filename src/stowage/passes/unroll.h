// The pass that lays iterations of scans out one after another, where a scan asks for it.
// Not a change of any bit: it runs after gradients and residuals were settled, so sums over
// iterations are made in the order in which the loop makes them.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// Scans of `unroll` 0, or of at least their length, become their bodies one after another; stacks
/// that pass from one such scan to another become the slices themselves. Other scans with `unroll`
/// n become loops over blocks of n iterations, what is left over following them. In nested graphs
/// too. Slices and concatenations that nothing reads are left for remove_dead_code.
Graph unroll_scans(const Graph& graph);

}  // namespace stow
