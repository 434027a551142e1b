// The joint body of a differentiated scan: forward and backward of one iteration.
// Not the choice of residuals: split_joint_scan keeps each value that the backward part reads.
#pragma once

#include <vector>

#include "stowage/autodiff/flatten.h"
#include "stowage/base/inside.h"
#include "stowage/ir/joint_scan.h"

namespace stow {

/// The forward and the backward scan of a differentiated scan. The carries of the backward scan are
/// a cotangent for each of `active_carries` (carry numbers, also result numbers), then a sum for
/// each of `active_consts` (operand numbers). Its backward-only slices are a cotangent for each of
/// `active_ys` (result numbers). Its stacked results are the cotangents of `active_xs` (operand
/// numbers).
struct ScanGradient {
  SplitScan split;
  std::vector<int> active_carries, active_consts, active_xs, active_ys;
};

/// Differentiates a scan. `outer`: activity of the values of the graph that holds the scan.
/// `on_device`: true if cotangents and gradients are on the device; false if each is in the memory
/// kind of its value (ReverseSpec::on_device, reverse.h).
ScanGradient differentiate_scan(const Node& scan, const Activity& outer, bool on_device);

}  // namespace stow
