// Reverse mode for a cond: one joint graph of forward and backward for each branch.
// Not the choice of residuals: split_joint_cond makes a residual of each value that backward reads.
#pragma once

#include <vector>

#include "stowage/autodiff/flatten.h"
#include "stowage/base/inside.h"
#include "stowage/ir/joint_cond.h"

namespace stow {

/// The forward and the backward cond of a differentiated cond. The backward-only operands of the
/// backward cond are a cotangent for each of `active_results` (numbers of results). It returns the
/// cotangents of `active_operands` (numbers of operands; operand 0 is the index).
struct CondGradient {
  SplitCond split;
  std::vector<int> active_operands, active_results;
};

/// Differentiates a cond. `outer`: activity of the values of the graph that holds the cond.
/// `on_device`: true if cotangents are on the device; false if each is in the memory kind of its
/// value (ReverseSpec::on_device, reverse.h).
CondGradient differentiate_cond(const Node& cond, const Activity& outer, bool on_device);

}  // namespace stow
