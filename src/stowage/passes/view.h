// View ops as arithmetic on strides: the window of the operand's memory that is the result.
// Not copies; these functions return none if the result is not a window.
#pragma once

#include <optional>

#include "stowage/base/inside.h"
#include "stowage/ir/schedule.h"

namespace stow {

/// Returns a row-major window of `type` on `buffer` at `offset_bytes`.
View contiguous_view(BufferId buffer, const ArrayType& type, int64_t offset_bytes = 0);
bool is_contiguous(const View& view);
/// True if both are the same elements of memory in the same order.
bool same_window(const View& a, const View& b);

/// Returns the window of a view or identity op's result, from the window of its operand; none for a
/// reshape that strides cannot express.
std::optional<View> apply_view_op(const Graph& graph, const Node& node, const View& in);

/// The inverse: returns the window that the operand must take for the result to lie at `out`; none
/// if the op is not a bijection of elements or the strides do not fit.
std::optional<View> invert_view_op(const Graph& graph, const Node& node, const View& out);

}  // namespace stow
