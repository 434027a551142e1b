// PolicySubjects: the node that a checkpoint policy is asked about, in the program of one position.
// Not the policy's answer.
#pragma once

#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"
#include "stowage/ir/utilities.h"

namespace stow {

/// If the parts of a product are summed over positions, a policy that keeps the product keeps the
/// sum, and not the parts: these would have to be summed again in the backward pass.
class PolicySubjects {
 public:
  explicit PolicySubjects(const Graph& graph) : graph_(&graph) {
    std::vector<int> reduced;  // by value: number of reductions over positions that read it
    for (const Node& node : graph.nodes()) {
      if (!is_reduction(node)) continue;
      reduced.resize(graph.n_values());
      ++reduced[node.operands[0].index()];
    }
    if (reduced.empty()) return;
    const std::vector<int> uses = count_uses(graph);
    is_part_.resize(graph.n_values());
    for (size_t v = 0; v < uses.size(); ++v) is_part_[v] = reduced[v] > 0 && reduced[v] == uses[v];
  }

  /// True for a value that only reductions over positions read.
  bool is_part(ValueId v) const { return !is_part_.empty() && is_part_[v.index()]; }
  /// Returns the node that a policy is asked about for a result of `node`: for the reduction of a
  /// part, the node that makes the part; else `node`.
  const Node& of(const Node& node) const {
    if (!is_reduction(node) || !is_part(node.operands[0]) || graph_->is_input(node.operands[0]))
      return node;
    return graph_->def(node.operands[0]);
  }

 private:
  static bool is_reduction(const Node& node) {
    return node.op == OpKind::kAllReduce || node.op == OpKind::kReduceScatter;
  }

  const Graph* graph_;
  std::vector<bool> is_part_;  // by value; empty if there are no reductions
};

}  // namespace stow
