// The pass that drops what no output needs, inside scans and checkpoints too.
// Not the merging of equal work; that is simplify.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// Drops nodes that no output of the graph needs. Of a scan also: stacked results nobody reads,
/// carries that only feed themselves, consts and scanned operands the body does not read; of a
/// checkpoint, results and operands likewise. `ScanParams::n_residuals` counts the residuals that
/// are left. Inputs and outputs of the graph, regions, marks and provenance stay. Linear in time.
Graph remove_dead_code(Graph graph);

}  // namespace stow
