// Joins a forward cond and its backward cond into joint branches, and splits these again.
// Not the choice of kept values; the residuals pass makes it by rewriting the joint branches.
#pragma once

#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// For each branch, one graph of its forward nodes and its backward nodes (Node::backward).
/// Inputs:  the forward operands, then the backward-only operands.
/// Outputs: the forward results, then the backward results.
struct JointCond {
  std::vector<Graph> branches;
  size_t n_forward_inputs = 0, n_forward_outputs = 0;
};

/// The two conds. Operands of the backward cond after its index: the forward operands listed in
/// `forward_operands` (numbered without the index), the forward results listed in
/// `forward_results`, the backward-only operands, the residuals.
struct SplitCond {
  std::vector<GraphPtr> forward, backward;
  std::vector<int> forward_operands, forward_results;
  int n_residuals = 0;
};

/// Splits joint branches into a forward cond and a backward cond. A forward value that the backward
/// part reads becomes an operand of the backward cond if it is an operand of the forward cond, or a
/// result that `readable_results` allows (none if that is empty). Nodes without operands are
/// copied. Every other value becomes a residual. Branches share residual slots by type: a type has
/// as many slots as the branch that saves most values of it; other branches fill unused slots with
/// zeros.
SplitCond split_joint_cond(const JointCond& joint, const std::vector<bool>& readable_results);

/// The inverse of split_joint_cond(), for two conds of `graph` with the same index; `backward`
/// reads residuals of `forward`. `backward_only` receives the operands of `backward` that are
/// neither operands nor results of `forward`.
JointCond join_conds(const Graph& graph, const Node& forward, const Node& backward,
                     std::vector<ValueId>& backward_only);

}  // namespace stow
