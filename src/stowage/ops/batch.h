// Batching of a whole graph: from the graph of one example to that of a batch of them.
// Not the rules, which stand with the ops; and not vmap, which api/ builds on it.
#pragma once

#include <span>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ops/op_def.h"

namespace stow {

/// For an output: wherever the rules leave the batch, kUnbatched where it is the same for all.
inline constexpr int64_t kAnyAxis = -2;

struct BatchedGraph {
  Graph graph;
  std::vector<int64_t> out_axes;  ///< Never kAnyAxis.
};

/// The graph over `size` examples: example i of the outputs is `graph` of example i of the inputs.
/// `in_axes` gives each input's batch axis or kUnbatched; `out_axes` where each output shall have
/// it, broadcast if need be, or kAnyAxis. Regions, names, provenance and marks stay.
BatchedGraph batch_graph(const Graph& graph, int64_t size, std::span<const int64_t> in_axes,
                         std::span<const int64_t> out_axes);

/// The type of a batch of `size` at `axis`; kUnbatched gives the type itself.
ArrayType batched_type(const ArrayType& type, int64_t axis, int64_t size);

}  // namespace stow
