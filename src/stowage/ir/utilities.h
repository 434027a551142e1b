// Questions about whole graphs: equality, hash, counts, users.
// Not passes; nothing here makes a graph.
#pragma once

#include <span>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// The region around a region, and around that, up to one that nothing is around.
RegionId outermost_region(const Graph& graph, RegionId region);

/// True if the graphs have the same nodes, operands, types, parameters (floats bit by bit, policies by identity), regions and
/// marks, in nested graphs too. Names of inputs, provenance and weakness of types do not count.
bool equal(const Graph& a, const Graph& b);
/// True if two nodes agree in all but operands, provenance, region and `backward`.
bool same_operation(const Node& a, const Node& b);

/// Equal graphs have equal hashes. Stable within a process (policies hash by address).
size_t structural_hash(const Graph& graph);
/// A hash of what same_operation compares.
size_t operation_hash(const Node& node);

/// How many nodes are of this op; `nested` counts those of nested graphs once a holder.
int64_t count_ops(const Graph& graph, OpKind op, bool nested);

/// One use of a value: operand `operand` of `node`.
struct Use {
  NodeId node;
  int operand = 0;
};
/// The uses of every value by the nodes of one graph, in node order; outputs are no use.
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
/// How often every value is used: by nodes, and as an output.
std::vector<int> count_uses(const Graph& graph);

}  // namespace stow
