// The rewrite of a slice of a dynamic_slice into a smaller dynamic_slice.
// Not a pass; simplify applies it while it copies a graph.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// The smaller dynamic_slice.
struct NarrowedSlice {
  const Node* wide = nullptr;  ///< The larger dynamic_slice that it replaces.
  Shape shape;                 ///< Its result's shape: the slice's, except for axes of extent 1.
  /// By axis of its operand: its constant start; none if the start is that of `wide`.
  std::vector<std::optional<int64_t>> starts;
};

/// Returns the smaller dynamic_slice that gives the same elements as `slice`, a slice of a
/// dynamic_slice. `slice` must have strides of 1 and be the only reader of a dynamic_slice of the
/// same region and pass, or of a reshape of one that only adds or drops axes of extent 1. Returns
/// none otherwise, and if an axis that becomes shorter has an unknown start, since the larger
/// extent clamps it. `uses`: number of uses of each value. `known`: returns the integer that a
/// value equals, if known.
std::optional<NarrowedSlice> narrowed_slice(
    const Graph& graph, const std::vector<int>& uses, const Node& slice,
    const std::function<std::optional<int64_t>(ValueId)>& known);

}  // namespace stow
