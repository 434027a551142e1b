// Sharding propagation: the sharding of every value of a program, from those of inputs and outputs.
// Not the program of one position; passes/partition makes that.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/core/axis_sharding.h"
#include "stowage/ops/op_def.h"

namespace stow {

/// The shardings of a graph and of its nested graphs.
struct GraphShardings {
  const Graph* graph = nullptr;
  std::vector<AxisSharding> of;  ///< By value, its sharding; never partial.
  /// By value: true if it is local to one position, as in the body of shard_map. Its type is then
  /// that of the part, and `of` is whole except for automatic mesh axes.
  std::vector<bool> manual;
  /// By value, for manual ones: a bit for each mesh axis by which the partitioner may cut it.
  std::vector<uint64_t> automatic;
  /// By value, for manual ones: a bit for each mesh axis along which positions may hold different
  /// values.
  std::vector<uint64_t> varies;
  std::vector<bool> fixed;               ///< By value: true if propagation must not change it.
  std::vector<ShardingFactors> factors;  ///< By node; empty for nodes that hold graphs.
  /// By node, then by nested graph.
  std::vector<std::vector<std::unique_ptr<GraphShardings>>> nested;

  const AxisSharding& at(ValueId v) const { return of[v.index()]; }
  bool is_manual(ValueId v) const { return manual[v.index()]; }
  /// True for a manual value that no mesh axis may cut.
  bool is_closed(ValueId v) const { return manual[v.index()] && automatic[v.index()] == 0; }
  /// A bit for each mesh axis that may cut the value.
  uint64_t may_cut(ValueId v) const {
    return manual[v.index()] ? automatic[v.index()] : ~uint64_t{0};
  }
};

/// True for a value that each reader recomputes in its own sharding, since it has no operand or
/// only a scalar: a splat constant, an iota, a broadcast scalar. Shardings do not spread through
/// it.
bool is_made_at_use(const Graph& graph, ValueId v);

/// Spreads shardings along the factors of ops and between graphs, forwards and backwards, until
/// nothing changes. Inputs, outputs with an entry in `out`, and `reshard` nodes are fixed. Axes
/// spread with Shardy's priorities: first through elementwise and identity ops; then through all
/// ops, except from the operand of a broadcast to its result; then there too. If letters compete
/// for a mesh axis in one value, the letter that comes first in the op's results, then operands,
/// gets it. The scanned axis of a stack gets no mesh axis. Nodes are visited in a fixed order, so
/// the result is deterministic.
/// Errors: TraceError if the result of a shard_map may differ along a mesh axis that its
/// specification leaves out.
std::unique_ptr<GraphShardings> propagate(const Graph& graph, const MeshShape& mesh,
                                          std::span<const AxisSharding> in,
                                          std::span<const std::optional<AxisSharding>> out);

}  // namespace stow
