// A forward scan and its backward scan as one joint body, and back: the one place that decides
// what crosses from one to the other. Not the choice of what is kept; that changes the joint body.
#pragma once

#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// One body that holds the forward nodes and the backward ones (Node::backward).
/// Inputs:  forward consts, carries, slices; then backward-only consts, carries, slices.
/// Outputs: forward carries, slices; then backward carries, slices.
struct JointScan {
  Graph body;
  ScanParams forward;  ///< Without residuals.
  /// A gradient runs against its forward scan; what a jvp makes of a gradient runs along with it.
  bool backward_reverse = false;
  int n_backward_consts = 0, n_backward_carries = 0;
  Dims backward_in_axes;   ///< The scanned axis of each backward-only operand that is sliced.
  Dims backward_out_axes;  ///< The axis along which each backward result is stacked.
};

/// The two scans. Backward operands: forward consts by number, backward-only consts; backward
/// carries; forward slices by number (counted among the slices), the residual stacks,
/// backward-only slices.
struct SplitScan {
  ScanParams forward_params, backward_params;
  GraphPtr forward_body, backward_body;
  std::vector<int> forward_consts, forward_xs;
};

/// Splits a joint body into a forward scan and a backward scan. Of the values of the forward part
/// that the backward part reads, consts and slices are handed to it, leaves are copied, and every
/// other value becomes a residual.
SplitScan split_joint_scan(const JointScan& joint);

/// The inverse, of two scans of one graph, `backward` reading residuals of `forward`. The operands
/// of backward that are none of forward's are returned in `backward_only`, in the order of the
/// joint body's backward-only inputs (consts, carries, slices).
JointScan join_scans(const Graph& graph, const Node& forward, const Node& backward,
                     std::vector<ValueId>& backward_only);

}  // namespace stow
