// Random well-typed graphs over small arrays, with scans, checkpoints, regions and marks.
// Not programs anyone would write; they are full of equal, dead and idle work.
#pragma once

#include <random>

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow::testing {

/// Returns a graph of about n_nodes nodes; scans and checkpoints nest up to `depth`.
Graph random_graph(std::mt19937& random, int n_nodes, int depth);
/// Returns row-major elements with zeros of both signs, infinities, NaN, small and large numbers.
std::vector<std::byte> random_array(std::mt19937& random, const ArrayType& type);

}  // namespace stow::testing
