// Checks the live ranges and the moves of a schedule against what its kernels read and write.
// Not how the ranges are found, and no run: bytes hold the instants at which they were written.
#pragma once

#include <string>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/schedule.h"

namespace stow::testing {

/// Every byte that a kernel reads, and that a result or the done of a move finds, must lie in one
/// live range from its write to then; a layout cannot be wrong then. And what a move under way reads
/// or writes must be left alone by all that does not wait for it, so that the values cannot depend
/// on when it runs. Empty when all do; also for a schedule too long for the timeline to hold every
/// iteration.
std::string check_lives(const Schedule& schedule);

/// The same of every schedule that a graph may get: in each order, iterations of loops together and
/// apart, moves by themselves and ahead.
std::string check_lives_of_all(const Graph& graph, const std::vector<bool>& donated);

}  // namespace stow::testing
