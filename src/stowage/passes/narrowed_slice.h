// A slice of what dynamic_slice takes out, as a smaller dynamic_slice.
// Not a pass; simplify applies it while it copies a graph.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// A dynamic_slice that takes out what a slice leaves of a larger one.
struct NarrowedSlice {
  const Node* wide = nullptr;  ///< The larger dynamic_slice.
  Shape shape;                 ///< Shape taken out; the slice's own but for axes of one element.
  /// By axis of its operand: the start where that is another than the larger one's.
  std::vector<std::optional<int64_t>> starts;
};

/// Returns the smaller dynamic_slice that gives the same elements as a slice of a dynamic_slice.
/// The slice has steps of one and is the only reader of a dynamic_slice of the same region and
/// pass, or of a reshape of one that adds or drops axes of one element. Returns nothing if an axis
/// that becomes shorter begins at a place that is not known: the start is clamped by the larger
/// extent.
/// @param uses how often each value of the graph is used
/// @param known the integer that a value of the graph is, where that is known
std::optional<NarrowedSlice> narrowed_slice(
    const Graph& graph, const std::vector<int>& uses, const Node& slice,
    const std::function<std::optional<int64_t>(ValueId)>& known);

}  // namespace stow
