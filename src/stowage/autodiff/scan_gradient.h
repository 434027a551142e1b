// The joint body of a differentiated scan: forward and backward of one iteration.
// Not the choice of residuals: split_joint_scan makes one of whatever the backward part reads.
#pragma once

#include <vector>

#include "stowage/autodiff/flatten.h"
#include "stowage/base/inside.h"
#include "stowage/ir/joint_scan.h"

namespace stow {

/// How a scan's gradient is put together. Backward carries: a cotangent for each of
/// `active_carries` (carry numbers, also result numbers), then a sum for each of `active_consts`
/// (operand numbers). Backward-only slices: a cotangent for each of `active_ys` (result numbers).
/// Backward stacked results: cotangents of `active_xs` (operand numbers).
struct ScanGradient {
  SplitScan split;
  std::vector<int> active_carries, active_consts, active_xs, active_ys;
};

/// `on_device` as in ReverseSpec.
ScanGradient differentiate_scan(const Node& scan, const Activity& outer, bool on_device);

}  // namespace stow
