// The local rewrites of simplify: one node at a time, bits unchanged.
// Not a pass; simplify applies them while it copies a graph.
#pragma once

#include <optional>

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// `node` is about to be appended to `graph` with one result of `type`. Returns a value of the
/// graph that has the same bits, or an invalid id; `node` may then have become cheaper in place.
///
/// Exact for every input, signed zeros and infinities included; of NaNs, a signaling one may stay
/// signaling where an arithmetic op would have made it quiet.
ValueId peephole(const Graph& graph, Node& node, const ArrayType& type);

/// The one integer that a value holds everywhere, where that is known.
std::optional<int64_t> known_integer(const Graph& graph, ValueId v);

/// Returns the axis at which to cut a reduction of all axes of a large array in two: first a
/// reduction of the trailing axes, from the returned one on, then one of what that leaves. 0 for
/// any other node.
///
/// This gives sums another order, by the shape alone and so in every program alike: rows can then be
/// reduced wherever they are, tile by tile.
int first_axis_of_rows(const Graph& graph, const Node& node);

}  // namespace stow
