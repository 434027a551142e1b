// Checks the live ranges and the moves of a schedule against the reads and writes of its kernels.
// Not a run: it tracks, for each byte, the instant of its last write.
#pragma once

#include <string>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/schedule.h"

namespace stow::testing {

/// Returns the first violation, or "". Every byte that a kernel, a result or the done of a move
/// reads must be in one live range from its write to the read; any layout is then correct. No
/// instruction may touch the bytes of a move in flight before the move's done; values then do not
/// depend on the time at which the move runs. Returns "" for a schedule whose timeline does not
/// have every iteration.
std::string check_lives(const Schedule& schedule);

/// Checks all schedules that a graph may get: each order strategy, iterations of loops laid out
/// together and apart, with and without moves ahead.
std::string check_lives_of_all(const Graph& graph, const std::vector<bool>& donated);

}  // namespace stow::testing
