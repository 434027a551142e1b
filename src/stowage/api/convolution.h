// Convolutions and sliding windows, by the names of jax.lax; pooling.
// Not layers with weights.
#pragma once

#include <string>
#include <string_view>

#include "stowage/api/shaping.h"

namespace stow {

/// The padding around the axes that windows slide over: by a rule, or so many elements before and
/// after each (negative ones are cut off).
class Padding {
 public:
  /// "VALID": nothing; "SAME": as many windows as elements over the stride, rounded up, what is
  /// added being split evenly with the odd one after ("SAME_LOWER": before).
  Padding(const char* rule) : rule_(rule) {}                             // NOLINT: converts
  Padding(std::vector<PadWidth> widths) : widths_(std::move(widths)) {}  // NOLINT
  Padding(std::initializer_list<PadWidth> widths) : widths_(widths) {}

  /// The widths for windows of these (dilated) extents.
  /// Errors: TraceError "[function] ..." for an unknown rule or another number of axes.
  std::vector<PadWidth> widths(std::string_view function, const Dims& extents, const Dims& windows,
                               const Dims& strides) const;

  bool is_rule(std::string_view rule) const { return rule_ == rule; }  ///< By that name.

 private:
  std::string rule_;
  std::vector<PadWidth> widths_;
};

struct ConvOptions {
  Dims strides = {};  ///< Strides of the windows; ones if empty, as the dilations.
  Padding padding = "VALID";
  Dims lhs_dilation = {};  ///< Zeros between elements: 2 puts one.
  Dims rhs_dilation = {};
  /// Names of the axes: N or O, C or I, and one letter a spatial axis. If empty "NC...", "OI...",
  /// "NC..." with the spatial axes last. Strides, padding and dilations are in the order of the
  /// spatial axes of rhs.
  std::string lhs_axes = {}, rhs_axes = {}, out_axes = {};
  int64_t feature_groups = 1;
  int64_t batch_groups = 1;
};
/// XLA's general convolution, which does not reverse the kernel.
/// Shapes:  lhs [N, C, S...], rhs [O, C / feature_groups, K...]; returns [N / batch_groups, O, T...]
///          with T = (padded and dilated S - dilated K) / stride + 1, in the orders asked for.
/// Types:   one dtype by promotion; sums of f16 and bf16 in f32.
/// Memory:  scratch: lhs padded and stretched, where there is padding or lhs_dilation.
/// Errors:  TraceError naming the shapes; for padding by a rule other than "VALID" beside
///          lhs_dilation, as nothing says what that would mean.
/// Source:  XLA, operation semantics, ConvWithGeneralPadding.
Array conv_general_dilated(const Operand& lhs, const Operand& rhs, const ConvOptions& options = {});
/// lax.conv: strides and padding, spatial axes last.
Array conv(const Operand& lhs, const Operand& rhs, const Dims& strides, const Padding& padding);
/// lax.conv_transpose: the convolution whose gradient a strided one is; `strides` stretch lhs.
Array conv_transpose(const Operand& lhs, const Operand& rhs, const Dims& strides,
                     const ConvOptions& options = {});
/// The convolution of two vectors, the kernel reversed: "full", "same" or "valid" (jnp.convolve).
/// Integers give f32.
Array convolve(const Operand& a, const Operand& v, std::string_view mode = "full");

struct WindowOptions {
  Dims strides = {};  ///< Ones if empty, as the dilations.
  Padding padding = "VALID";
  Dims base_dilation = {}, window_dilation = {};
};
// Reductions over windows, one extent an axis of x (lax.reduce_window). What padding and dilation
// put between elements takes no part; a window without elements gives 0, or the lowest or highest
// number. The gradient of an extreme goes to the first of equals in the window.
// Errors: TraceError naming the axis.
Array reduce_window_sum(const Operand& x, const Dims& window, const WindowOptions& options = {});
Array reduce_window_max(const Operand& x, const Dims& window, const WindowOptions& options = {});
Array reduce_window_min(const Operand& x, const Dims& window, const WindowOptions& options = {});

/// Pooling of [N, S..., C] over windows of the axes S (flax.linen). Strides are ones if empty.
/// An average is over the whole window, padding being zeros, or, if not `count_padding`, over the
/// elements of x in it.
Array max_pool(const Operand& x, const Dims& window, const Dims& strides = {},
               const Padding& padding = "VALID");
Array min_pool(const Operand& x, const Dims& window, const Dims& strides = {},
               const Padding& padding = "VALID");  ///< The smallest in each window.
Array avg_pool(const Operand& x, const Dims& window, const Dims& strides = {},
               const Padding& padding = "VALID", bool count_padding = true);  ///< The mean of each window.

}  // namespace stow
