// Joins a forward scan and its backward scan into one joint body, and splits it again.
// Not the choice of kept values; the residuals pass makes it by rewriting the joint body.
#pragma once

#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// One body of the forward nodes and the backward nodes (Node::backward).
/// Inputs:  forward consts, carries, slices; then backward-only consts, carries, slices.
/// Outputs: forward carries, slices; then backward carries, slices.
struct JointScan {
  Graph body;
  ScanParams forward;  ///< Without residuals.
  /// ScanParams::reverse of the backward scan. A gradient runs in the opposite direction of its
  /// forward scan; the jvp of a gradient runs in the direction of that gradient.
  bool backward_reverse = false;
  int n_backward_consts = 0, n_backward_carries = 0;
  Dims backward_in_axes;   ///< The scanned axis of each backward-only scanned operand.
  Dims backward_out_axes;  ///< The axis along which each backward result is stacked.
};

/// The two scans. Operands of the backward scan: the forward consts listed in `forward_consts`, the
/// backward-only consts; the backward carries; the forward scanned operands listed in `forward_xs`
/// (numbered among the scanned operands), the residual stacks, the backward-only scanned operands.
struct SplitScan {
  ScanParams forward_params, backward_params;
  GraphPtr forward_body, backward_body;
  std::vector<int> forward_consts, forward_xs;
};

/// Splits a joint body into a forward scan and a backward scan. Forward consts and slices that the
/// backward part reads become operands of the backward scan, nodes without operands are copied, and
/// every other forward value that it reads becomes a residual.
SplitScan split_joint_scan(const JointScan& joint);

/// The inverse of split_joint_scan(), for two scans of `graph`; `backward` reads residuals of
/// `forward`. `backward_only` receives the operands of `backward` that are not operands of
/// `forward`, in the order of the joint body's backward-only inputs (consts, carries, slices).
JointScan join_scans(const Graph& graph, const Node& forward, const Node& backward,
                     std::vector<ValueId>& backward_only);

}  // namespace stow
