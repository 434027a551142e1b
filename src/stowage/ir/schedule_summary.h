// Counts of a schedule's work. Not its text (schedule_printer.h), nor its memory, which is the plan's.
#pragma once

#include <vector>

#include "stowage/ir/partition_report.h"
#include "stowage/ir/schedule.h"

namespace stow::ir {

/// The collectives that a position runs, by op, as they run: loops are multiplied out, a loop whose end is
/// open counts once, and of alternatives all count. Bytes are those of a ring, sent by a position.
std::vector<CollectiveCount> count_collectives(const Schedule& schedule);

}  // namespace stow::ir
