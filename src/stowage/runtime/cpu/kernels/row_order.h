// The order of a row program's steps in which few values wait in registers.
// Not another program: every step stays and computes what it did.
#pragma once

#include "stowage/ir/row_program.h"

namespace stow::cpu {

/// The program with each result's steps together: what is next is the result with the fewest steps to
/// go, the first of several. Steps that no result needs are dropped. Outputs have the same bits.
RowProgram in_order_of_results(const RowProgram& program);

}  // namespace stow::cpu
