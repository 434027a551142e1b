// Questions about whole graphs: equality, hash, counts, users.
// Not passes; nothing here makes a graph.
#pragma once

#include <span>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// Returns the outermost region that encloses a region, or the region itself.
RegionId outermost_region(const Graph& graph, RegionId region);

/// True if the graphs have the same nodes, operands, types, parameters (floats compared by bits,
/// policies by identity), regions and flags, nested graphs included. Names of inputs, provenance
/// and weakness of types do not count.
bool equal(const Graph& a, const Graph& b);
/// True if two nodes agree in all but operands, provenance, region and flags.
bool same_operation(const Node& a, const Node& b);

/// A hash under which graphs that are equal() agree. Stable within a process (policies hash by
/// address).
size_t structural_hash(const Graph& graph);
/// A hash under which nodes that agree by same_operation() agree.
size_t operation_hash(const Node& node);

/// Number of nodes of this op; with `nested`, also those of nested graphs, once for each node that
/// holds the graph.
int64_t count_ops(const Graph& graph, OpKind op, bool nested);

/// One use of a value: operand `operand` of `node`.
struct Use {
  NodeId node;
  int operand = 0;
};
/// The uses of every value by the nodes of one graph, in node order. An output does not count as a
/// use.
class Users {
 public:
  explicit Users(const Graph& graph);
  std::span<const Use> of(ValueId value) const {
    return std::span(uses_).subspan(start_[value.index()],
                                    start_[value.index() + 1] - start_[value.index()]);
  }

 private:
  std::vector<uint32_t> start_;
  std::vector<Use> uses_;
};
inline Users users(const Graph& graph) {
  return Users(graph);
}
/// Number of uses of each value, by nodes and as an output.
std::vector<int> count_uses(const Graph& graph);

}  // namespace stow
