// Parts of a graph that can be streamed: elementwise work over arrays that lie on the host or disk,
// or go there, or that are sums of few rows.
// Not the rewriting into scans; that is tiles.h.
#pragma once

#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ops/build.h"

namespace stow {

/// Nodes that can run together on one tile after another: elementwise ones over one shape, moves of
/// their results to other memories, reductions of all but leading axes, and work on row values, such
/// as the scales of blocks of a quantized moment, with their broadcasts along the rows. Moves of what they read to the
/// device, sums of rows and random bits are no members; each cluster makes its own, and a member that
/// reads what another one moved away and back reads that one. No path leads from a member over other
/// nodes, or other clusters, to a member.
struct TileCluster {
  std::vector<NodeId> nodes;  ///< In topological order.
  Dims dims;                  ///< The shape of what is cut into tiles.
  int n_axes = 0;  ///< So many leading axes may be cut; a member needs the others whole.
  std::vector<ValueId> sums;  ///< Sums of rows that members read, and nothing needs whole.
  std::vector<ValueId> bits;  ///< Random bits that nothing reads but clusters that move.
  bool moves = false;         ///< Something of it is in another memory.
};

/// The clusters over arrays of more than two tiles, were they of f32. What is made to be moved away and
/// is then brought back is a cluster of its own, so that it leaves early; or, `with_stores`, part of
/// the one that brings it back.
std::vector<TileCluster> find_tile_clusters(const Graph& graph, int64_t tile_bytes,
                                            bool with_stores = false);

/// A scatter_add of whole rows, along the first axis, to a constant, of at most half as many rows as
/// there are: the gradient of an embedding. A tile of it is made from them, and the whole need never
/// be there.
bool is_sum_of_rows(const Graph& graph, ValueId v);

/// True if a gather or scatter over an array of that shape is of whole rows, along the first axis.
bool is_of_rows(const GatherParams& p, const Shape& shape);

/// The first axis that a reduction drops; 0 for any other node.
int first_reduced_axis(const Node& node);

/// The number of leading axes of `dims` that a shape has, where it has no others but of extent 1: one
/// value for each of them. 0 for any other shape, and for `dims` themselves.
int row_axes(const Dims& shape, const Dims& dims);

/// A move from another memory to the device.
bool is_fetch(const Graph& graph, ValueId v);

/// The x of a device_put of x away from the device and back; invalid for any other value.
ValueId brought_back(const Graph& graph, ValueId v);

/// A value all of whose elements are one: a splat constant, or the broadcast of a scalar. `source`
/// is that constant's value or that scalar; invalid for any other value.
ValueId uniform_source(const Graph& graph, ValueId v);

/// True if the uniform_source() of a value is a constant.
bool is_uniform_constant(const Graph& graph, ValueId v);
/// Adds the constant behind a uniform value to the graph of `b`, broadcast to that shape.
Val uniform_constant(GraphBuilder& b, const Graph& graph, ValueId v, const Shape& shape);

}  // namespace stow
