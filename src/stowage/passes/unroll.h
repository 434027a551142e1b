// The pass that unrolls scans with `unroll`. It runs after residuals, so sums keep their order.
// Not the choice of what to unroll.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// Replaces scans whose `unroll` is 0 or at least their length by their bodies, one after another;
/// a stack between two such scans becomes single slices. Replaces scans with another `unroll` n > 1
/// by scans over blocks of n iterations, followed by the remaining iterations. Nested graphs
/// included. Slices and concatenations without readers remain for remove_dead_code.
Graph unroll_scans(const Graph& graph);

}  // namespace stow
