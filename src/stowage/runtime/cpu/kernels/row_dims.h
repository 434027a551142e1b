// The iteration space of a row program with its dimensions dropped, ordered and merged.
// Not the steps; those are row_compiler.h's.
#pragma once

#include "stowage/runtime/cpu/kernels/row_plan.h"

namespace stow::cpu {

/// Fills the dimensions and operands of `plan`: inputs, outputs, then one operand an iota step in
/// order, whose "address" is its value.
void plan_dims(const RowProgram& program, RowPlan& plan);

/// True if the output may lie in the input's memory, element for element.
bool may_share(const PlanOperand& output, const PlanOperand& input);

}  // namespace stow::cpu
