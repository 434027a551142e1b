// Finds the parts of a graph that can be streamed tile by tile: mostly elementwise work.
// Not the rewrite into scans; tiles.h does that.
#pragma once

#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ops/build.h"

namespace stow {

/// Nodes that can run together, one tile after another. Members are elementwise nodes over one
/// shape, moves of their results to other memories, reductions that keep only leading axes, and
/// work on row values, such as the scales of blocks of a quantized moment, with broadcasts along
/// the rows. Moves of operands to the device, sums of rows and random bits are not members; each
/// cluster makes its own. A member that reads a value that another member moved away and back reads
/// that member directly. No path leads from a member over nodes outside the cluster to a member.
struct TileCluster {
  std::vector<NodeId> nodes;  ///< In topological order.
  Dims dims;                  ///< The shape that is cut into tiles.
  int n_axes = 0;  ///< Number of leading axes that may be cut; a member needs the others whole.
  std::vector<ValueId> sums;  ///< Sums of rows that members read and no node needs whole.
  std::vector<ValueId> bits;  ///< Random bits that only clusters with `moves` read.
  bool moves = false;         ///< True if an operand or result is in another memory.
};

/// Returns the clusters over arrays of more than two tiles, counted as f32. Work whose result is
/// moved away and later brought back is a cluster of its own, so that it leaves early;
/// `with_stores`, it is part of the cluster that brings the result back.
std::vector<TileCluster> find_tile_clusters(const Graph& graph, int64_t tile_bytes,
                                            bool with_stores = false);

/// True for a scatter_add of whole rows, along the first axis, to a constant, with at most half as
/// many updates as the result has rows: the gradient of an embedding. Each tile can be made from
/// the updates, so the whole need never exist.
bool is_sum_of_rows(const Graph& graph, ValueId v);

/// True if a gather or scatter over an array of that shape takes whole rows, along the first axis.
bool takes_whole_rows(const GatherParams& p, const Shape& shape);

/// Returns the first axis that a reduction drops; 0 for any other node.
int first_reduced_axis(const Node& node);

/// Returns n if `shape` is the first n axes of `dims` followed only by axes of extent 1, so it has
/// one value for each row. Returns 0 for any other shape, and for `dims` itself.
int row_axes(const Dims& shape, const Dims& dims);

/// True if v is the result of a move from another memory to the device.
bool is_fetch(const Graph& graph, ValueId v);

/// Returns x if v is x, moved off the device and back; else an invalid id.
ValueId round_trip_source(const Graph& graph, ValueId v);

/// Returns the source of a value whose elements are all equal: its splat constant, or the scalar of
/// which it is a broadcast. Returns an invalid id for any other value.
ValueId uniform_source(const Graph& graph, ValueId v);

/// True if the uniform_source() of a value is a constant.
bool is_uniform_constant(const Graph& graph, ValueId v);
/// Adds the constant uniform_source() of a value to the graph of `b`, broadcast to `shape`.
Val uniform_constant(GraphBuilder& b, const Graph& graph, ValueId v, const Shape& shape);

}  // namespace stow
