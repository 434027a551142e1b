// A forward cond and its backward cond as one joint graph a branch, and back: the one place that
// decides what crosses from one to the other. Not the choice of what is kept; that changes the
// joint branches.
#pragma once

#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// One graph a branch that holds the forward nodes and the backward ones (Node::backward).
/// Inputs:  the forward operands, then the backward-only ones.
/// Outputs: the forward results, then the backward ones.
struct JointCond {
  std::vector<Graph> branches;
  size_t n_forward_inputs = 0, n_forward_outputs = 0;
};

/// The two conds. Operands of backward after the index: forward operands by number (the index not
/// counted), forward results by number, the backward-only operands, the residuals.
struct SplitCond {
  std::vector<GraphPtr> forward, backward;
  std::vector<int> forward_operands, forward_results;
  int n_residuals = 0;
};

/// Splits joint branches into a forward cond and a backward cond. Of the values of the forward part
/// that the backward part reads, operands are handed to it, leaves are copied, and results are read
/// where `readable_results` allows it (none if that is empty). Every other value becomes a
/// residual. The branches share residuals of one type: as many of
/// a type are saved as the branch that needs most of them saves; others fill theirs with zeros.
SplitCond split_joint_cond(const JointCond& joint, const std::vector<bool>& readable_results);

/// The inverse, of two conds of one graph with the same index, `backward` reading residuals of
/// `forward`. The operands of backward that are none of forward's operands or results are returned
/// in `backward_only`.
JointCond join_conds(const Graph& graph, const Node& forward, const Node& backward,
                     std::vector<ValueId>& backward_only);

}  // namespace stow
