// Reorders the steps of a row program so that few values are live at a time.
// Not another program: every step computes what it did.
#pragma once

#include "stowage/ir/row_program.h"

namespace stow::cpu {

/// Returns the program with the steps of each result together. The next result is always the one
/// with the fewest steps left, the first of several. Drops steps that no result needs. Outputs have
/// the same bits.
RowProgram group_steps_by_result(const RowProgram& program);

}  // namespace stow::cpu
