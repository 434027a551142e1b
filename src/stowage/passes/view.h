// View ops as arithmetic on strides: what window of its operand's memory a result is.
// Not a copy; an op whose result is no window says so.
#pragma once

#include <optional>

#include "stowage/base/inside.h"
#include "stowage/ir/schedule.h"

namespace stow {

/// A row-major window of `type` on all of `buffer`, from `offset_bytes` on.
View contiguous_view(BufferId buffer, const ArrayType& type, int64_t offset_bytes = 0);
bool is_contiguous(const View& view);
/// True when both are the same elements of memory in the same order.
bool same_window(const View& a, const View& b);

/// The window that a view op's result (or an identity's) is of its operand's window; none when a
/// reshape cannot be told by strides.
std::optional<View> apply_view_op(const Graph& graph, const Node& node, const View& in);

/// The inverse: the window that the operand must take for the result to lie at `out`; none where
/// the op is no bijection of elements or the strides do not fit.
std::optional<View> invert_view_op(const Graph& graph, const Node& node, const View& out);

}  // namespace stow
