// The joint branches of a differentiated cond.
// Not the choice of residuals: split_joint_cond makes one of whatever the backward part reads.
#pragma once

#include <vector>

#include "stowage/autodiff/flatten.h"
#include "stowage/base/inside.h"
#include "stowage/ir/joint_cond.h"

namespace stow {

/// How a cond's gradient is put together. Backward-only operands: a cotangent for each of
/// `active_results` (result numbers). Backward results: cotangents of `active_operands` (operand
/// numbers, the index being 0).
struct CondGradient {
  SplitCond split;
  std::vector<int> active_operands, active_results;
};

/// `on_device` as in ReverseSpec.
CondGradient differentiate_cond(const Node& cond, const Activity& outer, bool on_device);

}  // namespace stow
