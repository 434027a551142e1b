// Counts of the collectives in a schedule.
// Not its text (schedule_printer.h), nor its memory (plan/).
#pragma once

#include <vector>

#include "stowage/ir/partition_report.h"
#include "stowage/ir/schedule.h"

namespace stow::ir {

/// The collectives that one position runs, by op. Loops are multiplied out, a while loop counts
/// once, and all alternatives of a branch count.
std::vector<CollectiveCount> count_collectives(const Schedule& schedule);

}  // namespace stow::ir
