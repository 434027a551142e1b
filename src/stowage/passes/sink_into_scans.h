// The pass that gives a scan's body moves to the device, and elementwise work, of what it scans, so
// that no whole array is made for the scan. Not work behind a scan (slice_work.h), nor moves of what
// it stacks (sink_moves.h).
#pragma once

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// Moves each slice in a scan's body if the scan reads an array that is moved to the device for it.
/// If the scan alone reads the result of elementwise work over such arrays and scalars, its body
/// does that work on each slice. Stacks off the device then come slice by slice, and a gradient on
/// the host that is scaled for an optimizer that goes matrix by matrix is never whole on the
/// device. An array that something else needs whole on the device stays; so does one that several
/// scans read, unless each is to move its slices for itself, `again`. Bits stay.
Graph sink_into_scans(const Graph& graph, bool again = false);

}  // namespace stow
