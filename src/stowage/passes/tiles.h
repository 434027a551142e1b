// The pass that streams elementwise work over arrays on the host or disk, tile by tile, as scans.
// Not the overlap of moves with computation (transfers.h).
#pragma once

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

struct TileOptions {
  /// Approximate bytes of a tile of one array of a cluster, counted in the cluster's widest dtype;
  /// 0: no tiles.
  int64_t bytes = 0;
  /// Arrays of at most this many bytes, counted as f32, stay whole if their work moves them to the
  /// device, makes results as large, and moves nothing off the device. Work that reads the same
  /// arrays stays whole too. Tiles would cost a launch each and save little memory compared with
  /// the results.
  int64_t whole_bytes = 0;
  /// True to cut clusters that are independent of the busiest scan of the backward pass, the one
  /// with the most FLOPs (busiest_backward_scan()), into as many tiles as it has iterations, of any
  /// size, if that divides evenly, and to merge them into that scan (merge_independent_scans.h).
  bool match_backward_scan = false;
};

/// Rewrites each cluster (tile_clusters.h) into a scan over tiles of about `options.bytes`, or up
/// to four times that if there would be more than 64 tiles. The scan's scanned operands are the
/// arrays off the device, before their move, and arrays on the device that the cluster reads; its
/// constants are scalars; its body moves a tile in, computes and moves a tile out. An optimizer's
/// update of moments and weights on the host then never has a whole array on the device. An array
/// that other work needs whole on the device is still moved there for that work.
///
/// The leading axes are cut, evenly if there is a fitting divisor; else a second scan of one tile
/// does the rest, and the results are concatenated. Elementwise work and reductions of other axes
/// have the same bits in tiles. Arrays of up to two tiles, work over shapes that cannot be cut, and
/// nested graphs stay whole.
Graph stream_tiles(const Graph& graph, const TileOptions& options);

}  // namespace stow
