// checkpoint_cost: a note that recomputation raises the peak of a program.
// Not a choice of residuals; passes/residuals.h realizes the policies.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"
#include "stowage/session/layout.h"

namespace stow {

/// Returns a note that names the checkpoints and the bytes if recomputed values are a large part of
/// the device's peak and keeping every value would need less; else none. `residuals`: the graph
/// with its policies realized. `kept`: returns the same program with every value kept, as a graph
/// that can be lowered; called only if the result may depend on it. Programs that move arrays
/// between memories, and recomputation within the iterations of scans, get no note.
std::optional<std::string> checkpoint_cost(const Graph& residuals, const Planned& planned,
                                           const LowerOptions& lowering,
                                           const std::function<Graph()>& kept);

}  // namespace stow
