// The local rewrites of simplify: one node at a time, bits unchanged.
// Not a pass; simplify applies them while it copies a graph.
#pragma once

#include <optional>

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// Simplifies `node` before it is appended to `graph` with one result of `type`. Returns a value of
/// the graph with the same bits; or an invalid id, and `node` may then have been rewritten to a
/// cheaper one.
///
/// Exact for every input, signed zeros and infinities included. One exception: a signaling NaN may
/// stay signaling, although an arithmetic op would have made it quiet.
ValueId peephole(const Graph& graph, Node& node, const ArrayType& type);

/// Returns the integer that all elements of a value equal, if known.
std::optional<int64_t> known_integer(const Graph& graph, ValueId v);

/// Returns the axis at which to split a reduction of all axes of a large array into two: one of the
/// trailing axes from the returned axis on, then one of its results. Returns 0 for any other node.
///
/// The split changes the order of the sum. It depends only on the shape, so every program has the
/// same order. Rows can then be reduced wherever they are, tile by tile.
int first_axis_of_rows(const Graph& graph, const Node& node);

}  // namespace stow
