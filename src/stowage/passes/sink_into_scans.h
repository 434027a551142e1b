// The pass that sinks moves to the device, and elementwise work, of scanned operands into the scan.
// Not work on a scan's results (slice_work.h), nor moves of them (sink_moves.h).
#pragma once

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// If a scanned operand is an array that is moved to the device for the scan, the body moves each
/// slice instead. If a scanned operand is elementwise work over arrays that are moved to the device
/// and scalars, and only the scan reads it, the body does that work on each slice. Arrays off the
/// device are then moved slice by slice; for example, a gradient on the host that is scaled for an
/// optimizer of single matrices is never whole on the device. An array that another node needs
/// whole on the device stays. An array that several scans read stays too, unless `again` allows
/// each to move its slices for itself. Bits stay.
Graph sink_into_scans(const Graph& graph, bool again = false);

}  // namespace stow
