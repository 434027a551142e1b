// How every value of a program lies on a mesh, from how its inputs and outputs shall lie.
// Not the program of one position; passes/partition writes that.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/core/axis_sharding.h"
#include "stowage/ops/op_def.h"

namespace stow {

/// The shardings of a graph and of those nested in it.
struct GraphShardings {
  const Graph* graph = nullptr;
  std::vector<AxisSharding> of;  ///< By value; never partial.
  /// By value: it is one position's own, as in the body of shard_map. Its type is that of the part,
  /// and `of` says whole, but for axes that are automatic.
  std::vector<bool> manual;
  /// By value, of manual ones: a bit for each mesh axis that the partitioner may cut it with.
  std::vector<uint64_t> automatic;
  /// By value, of manual ones: a bit for each mesh axis along which positions may hold different
  /// values.
  std::vector<uint64_t> varies;
  std::vector<bool> fixed;               ///< By value: nothing spreads to it.
  std::vector<ShardingFactors> factors;  ///< By node; none of nodes that hold graphs.
  /// By node, then by nested graph.
  std::vector<std::vector<std::unique_ptr<GraphShardings>>> nested;

  const AxisSharding& at(ValueId v) const { return of[v.index()]; }
  bool is_manual(ValueId v) const { return manual[v.index()]; }
  /// True for a manual value that no mesh axis may cut.
  bool is_closed(ValueId v) const { return manual[v.index()] && automatic[v.index()] == 0; }
  /// A bit for each mesh axis that may cut the value.
  uint64_t may_cut(ValueId v) const { return manual[v.index()] ? automatic[v.index()] : ~uint64_t{0}; }
};

/// True for a value that is made anew as each reader wants it, since that takes no operand but a
/// scalar: a constant of one number, an iota, a scalar that is broadcast. Shardings do not spread
/// through it.
bool is_made_at_use(const Graph& graph, ValueId v);

/// Spreads shardings along the factors of ops and the edges between graphs, forwards and backwards,
/// until nothing changes. Inputs, outputs that say so and `reshard` nodes are fixed. Axes spread in
/// Shardy's order of priorities: first through elementwise ops and marks, then through all ops but
/// from the operand of a broadcast to its result, then there too. Where letters compete for a mesh
/// axis in one value, the one that comes first in the op's results, then operands, has it. The
/// scanned axis of a stack gets no mesh axis. A fixed order of nodes makes the result the same
/// everywhere. Errors: TraceError if the result of a shard_map may differ along a mesh axis that
/// its specification leaves out.
std::unique_ptr<GraphShardings> propagate(const Graph& graph, const MeshShape& mesh,
                                          std::span<const AxisSharding> in,
                                          std::span<const std::optional<AxisSharding>> out);

}  // namespace stow
