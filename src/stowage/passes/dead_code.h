// The pass that drops nodes that no output needs, inside scans and checkpoints too.
// Not the merging of equal work; simplify does that.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// Drops nodes that no output of the graph needs. Also drops, of a scan, stacked results without
/// readers, carries that only feed themselves, and consts and scanned operands that the body does
/// not read; of a checkpoint, results and operands in the same way. `ScanParams::n_residuals`
/// counts the remaining residuals. Inputs and outputs of the graph, regions, flags and provenance
/// stay. Linear in time.
Graph remove_dead_code(Graph graph);

}  // namespace stow
