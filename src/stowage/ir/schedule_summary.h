// What a schedule does, counted and as a text. Not its memory; that is in the plan.
#pragma once

#include <string>
#include <vector>

#include "stowage/ir/partition_report.h"
#include "stowage/ir/schedule.h"

namespace stow::ir {

/// The collectives that a position runs, by op, as they run: loops are multiplied out, a loop whose end is
/// open counts once, and of alternatives all count. Bytes are those of a ring, sent by a position.
std::vector<CollectiveCount> count_collectives(const Schedule& schedule);

/// A line an instruction: ops, row programs with their numbers, shapes, strides and where in which buffer.
/// For a digest: processes whose texts differ have planned other programs.
std::string text_of(const Schedule& schedule);

}  // namespace stow::ir
