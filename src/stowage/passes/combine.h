// The pass that combines all_reduces whose results are added.
// Not the combination of independent all_reduces (combine_all_reduces.h), and not their overlap.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// Adds parts before they are summed over positions. If terms of a sum are all_reduces over one
/// group, and only that sum reads them, one all_reduce of their sum replaces them; other terms are
/// added afterwards. The order of the terms changes, and so do bits. Reduce_scatters stay, since
/// their operands, n times as large as the results, would have to wait for one another. Nested
/// graphs included; linear in time.
Graph combine_sums(const Graph& graph);

}  // namespace stow
