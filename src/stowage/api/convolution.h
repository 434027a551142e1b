// Convolutions and sliding windows, by the names of jax.lax; pooling.
// Not layers with weights.
#pragma once

#include <string>
#include <string_view>

#include "stowage/api/shaping.h"

namespace stow {

/// The padding of the axes that windows slide over: a rule's name, or the numbers of elements to
/// add before and after each axis. A negative number removes elements.
class Padding {
 public:
  /// "VALID": no padding. "SAME": as many windows as the extent divided by the stride, rounded up;
  /// the padding is split evenly, and an odd element goes after. "SAME_LOWER": as "SAME", but the
  /// odd element goes before.
  Padding(const char* rule) : rule_(rule) {}                             // NOLINT: converts
  Padding(std::vector<PadWidth> widths) : widths_(std::move(widths)) {}  // NOLINT
  Padding(std::initializer_list<PadWidth> widths) : widths_(widths) {}

  /// The widths for an array of `extents` and windows of `windows`, both with dilation applied; one
  /// entry for each axis.
  /// Errors: TraceError "[function] ..." for an unknown rule or another number of axes.
  std::vector<PadWidth> widths(std::string_view function, const Dims& extents, const Dims& windows,
                               const Dims& strides) const;

  /// True if the padding was given as that rule.
  bool is_rule(std::string_view rule) const { return rule_ == rule; }

 private:
  std::string rule_;
  std::vector<PadWidth> widths_;
};

/// Options of a convolution. Strides, padding and dilations have one entry for each spatial axis,
/// in the order of the spatial axes of rhs.
struct ConvOptions {
  Dims strides = {};  ///< Strides of the windows; empty: ones.
  Padding padding = "VALID";
  Dims lhs_dilation = {};  ///< d puts d - 1 zeros between neighbouring elements; empty: ones.
  Dims rhs_dilation = {};  ///< The same for the kernel.
  /// The order of the axes, one letter each: N (batch) or, in rhs, O (output features); C or, in
  /// rhs, I (input features); any other letter names a spatial axis. Empty: "NC...", "OI...",
  /// "NC..." with the spatial axes last.
  std::string lhs_axes = {}, rhs_axes = {}, out_axes = {};
  int64_t feature_groups = 1;  ///< Groups of channels that are convolved separately.
  int64_t batch_groups = 1;    ///< Groups of the batch that are convolved separately.
};
/// XLA's general convolution, which does not reverse the kernel.
/// Shapes:  lhs [N, C, S...], rhs [O, C / feature_groups, K...];
///          returns [N / batch_groups, O, T...]
///          with T = (padded and dilated S - dilated K) / stride + 1, in the orders asked for.
/// Types:   one dtype by promotion; sums of f16 and bf16 in f32.
/// Memory:  scratch: lhs with padding and dilation applied, if there is any.
/// Errors:  TraceError naming the shapes; for lhs_dilation together with a padding rule other than
///          "VALID", which is not defined.
/// Source:  XLA, operation semantics, ConvWithGeneralPadding.
Array conv_general_dilated(const Operand& lhs, const Operand& rhs, const ConvOptions& options = {});
/// lax.conv: conv_general_dilated with these strides and padding, spatial axes last.
Array conv(const Operand& lhs, const Operand& rhs, const Dims& strides, const Padding& padding);
/// lax.conv_transpose: upsamples by `strides`, which dilate lhs. Ignores the strides and
/// lhs_dilation of `options`.
Array conv_transpose(const Operand& lhs, const Operand& rhs, const Dims& strides,
                     const ConvOptions& options = {});
/// The convolution of two vectors, the kernel reversed: "full", "same" or "valid" (jnp.convolve).
/// Integers give f32.
Array convolve(const Operand& a, const Operand& v, std::string_view mode = "full");

/// Options of a windowed reduction, one entry for each axis of x.
struct WindowOptions {
  Dims strides = {};  ///< Empty: ones.
  Padding padding = "VALID";
  Dims base_dilation = {}, window_dilation = {};  ///< Dilations of x and the window; empty: ones.
};
// Reductions over windows (lax.reduce_window). `window` has one extent for each axis of x. Elements
// that padding and dilation add are ignored. A window without elements gives 0 for a sum, the
// lowest number for a maximum and the highest for a minimum. The gradient of a maximum or minimum
// goes to the first of equal elements in the window.
// Errors: TraceError naming the axis.
Array reduce_window_sum(const Operand& x, const Dims& window, const WindowOptions& options = {});
Array reduce_window_max(const Operand& x, const Dims& window, const WindowOptions& options = {});
Array reduce_window_min(const Operand& x, const Dims& window, const WindowOptions& options = {});

// Pooling as in flax.linen.
// Shapes:  x [N, S..., C]; `window`, `strides` and `padding` have one entry for each axis of S;
//          returns [N, T..., C]. Empty strides are ones.
/// The largest of each window.
Array max_pool(const Operand& x, const Dims& window, const Dims& strides = {},
               const Padding& padding = "VALID");
/// The smallest of each window.
Array min_pool(const Operand& x, const Dims& window, const Dims& strides = {},
               const Padding& padding = "VALID");
/// The mean of each window. Divides by the size of the window, with zeros as padding. Without
/// `count_padding` it divides by the number of elements of x in the window.
Array avg_pool(const Operand& x, const Dims& window, const Dims& strides = {},
               const Padding& padding = "VALID", bool count_padding = true);

}  // namespace stow
