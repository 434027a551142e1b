// Products over axes by name.
// Not elementwise; a * b is that.
#pragma once

#include "stowage/nn/named/named_array.h"

namespace stow::named {

struct DotOptions {
  /// The axes of the result in this order; "..." stands for those not named. Not given: each axis
  /// where it first occurs in the operands.
  std::optional<AxisSelection> out_axes = {};
  /// The dtype of the result, if it is another than that of the operands.
  std::optional<DType> dtype = {};
};

/// Sums of products over `axes`. Axes that several operands have and that are not among `axes` go
/// along (a batch); the others are as in an outer product. all_axes gives a scalar, no_axes no sum.
/// Types:   as dot_general.
/// Errors:  TraceError where an axis is in no operand, or has two sizes.
/// Source:  Haliax's dot.
NamedArray dot(const NamedArray& a, const NamedArray& b, const AxisSelection& axes,
               const DotOptions& options = {}, STOW_AT);
/// Multiplies one operand or more from the left to the right. An axis is summed over with the last
/// operand that has it.
NamedArray dot(const std::vector<NamedArray>& operands, const AxisSelection& axes,
               const DotOptions& options = {}, STOW_AT);

}  // namespace stow::named
