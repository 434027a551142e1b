// Batching of a whole graph: from the graph of one example to the graph of a batch.
// Not the batching rules, which are part of OpDef; and not vmap, which api/ builds on this.
#pragma once

#include <span>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ops/op_def.h"

namespace stow {

/// For an output: leaves the batch axis where the rules put it, or kUnbatched.
inline constexpr int64_t kAnyAxis = -2;

struct BatchedGraph {
  Graph graph;
  std::vector<int64_t> out_axes;  ///< Never kAnyAxis.
};

/// Returns the graph over `size` examples: example i of the outputs is `graph` of example i of the
/// inputs. `in_axes` gives the batch axis of each input or kUnbatched; `out_axes` the batch axis
/// that each output must have, broadcast if needed, or kAnyAxis. Regions, names, provenance and
/// flags stay.
BatchedGraph batch_graph(const Graph& graph, int64_t size, std::span<const int64_t> in_axes,
                         std::span<const int64_t> out_axes);

/// Returns `type` with an axis of extent `size` inserted at `axis`; `type` itself for kUnbatched.
ArrayType batched_type(const ArrayType& type, int64_t axis, int64_t size);

}  // namespace stow
