// Products over axes by name.
// Not elementwise; a * b is that.
#pragma once

#include "stowage/nn/named/named_array.h"

namespace stow::named {

struct DotOptions {
  /// The order of the result's axes; "..." stands for those not named. None: the order in which
  /// axes first occur in the operands.
  std::optional<AxisSelection> out_axes = {};
  /// The dtype of the result; none: that of the operands.
  std::optional<DType> dtype = {};
};

/// Returns sums of products over `axes`. Axes that both operands have and that are not among `axes`
/// are batch axes; the others are as in an outer product. all_axes gives a scalar, no_axes no sum.
/// Types:   as dot_general.
/// Errors:  TraceError if an axis is in no operand, or has two sizes.
/// Source:  Haliax's dot.
NamedArray dot(const NamedArray& a, const NamedArray& b, const AxisSelection& axes,
               const DotOptions& options = {}, STOW_AT);
/// Multiplies one or more operands from left to right. An axis is summed over in the product with
/// the last operand that has it.
NamedArray dot(const std::vector<NamedArray>& operands, const AxisSelection& axes,
               const DotOptions& options = {}, STOW_AT);

}  // namespace stow::named
