// Says where recomputation raises a peak: what a checkpoint around much of a program costs.
// Not a choice of residuals; passes/residuals.h makes what the policies ask for.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"
#include "stowage/session/layout.h"

namespace stow {

/// A sentence that names the checkpoints and the bytes, where recomputed values are much of the peak of
/// the device and keeping every value would have needed less; none else. `residuals` is the graph with
/// its policies realised. `kept` makes the same program with every value kept, as a graph that can be
/// lowered; it is called where the answer may depend on it alone. Programs that move arrays between
/// memories, and recomputation within the iterations of scans, are not judged.
std::optional<std::string> checkpoint_cost(const Graph& residuals, const Planned& planned,
                                           const LowerOptions& lowering,
                                           const std::function<Graph()>& kept);

}  // namespace stow
