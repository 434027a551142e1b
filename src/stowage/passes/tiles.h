// The pass that streams elementwise work over arrays on the host or disk, tile by tile, as scans.
// Not the overlap of moves with work; and nothing that changes a bit.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

struct TileOptions {
  int64_t bytes = 0;  ///< Approximate size of a tile; 0: no tiles.
  /// Arrays of at most that many bytes, counted as f32, are left whole if they come to the device,
  /// make results as large, and send nothing away. Work that reads the same arrays is left whole
  /// too. Tiles would cost a launch each and save little beside those results.
  int64_t whole_bytes = 0;
  bool beside = false;  ///< See below.
};

/// Rewrites each cluster (tile_clusters.h) into a scan over tiles of near `options.bytes`, or up to
/// four times that where there would be more than 64. Its scanned operands are what was moved to the
/// device, where it lies, and arrays on the device that the cluster reads; its constants are scalars;
/// its body moves a tile in, computes and moves a tile out. So an optimizer's update of moments and
/// weights on the host never has a whole one on the device. What other work needs whole on the device
/// is moved there for that work as before.
///
/// The leading axes are cut, evenly where a fitting divisor exists; else a second scan of one tile
/// does the rest, and the results are concatenated. Elementwise work and reductions of other axes
/// have the same bits in tiles. Left whole: arrays of up to two tiles, work over shapes that cannot
/// be cut, and everything in nested graphs.
///
/// `beside`: what neither waits for the busiest scan of the backward pass nor is waited for by it is
/// cut into as many tiles as that has iterations, of whatever size, where that goes evenly, and done
/// in it (beside.h).
Graph stream_tiles(const Graph& graph, const TileOptions& options);

}  // namespace stow
