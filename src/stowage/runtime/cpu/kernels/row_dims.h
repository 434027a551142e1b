// Normalizes the iteration space of a row program: drops, orders and merges its dimensions.
// Not the steps; row_compiler.h compiles those.
#pragma once

#include "stowage/runtime/cpu/kernels/row_plan.h"

namespace stow::cpu {

/// Sets the dimensions and operands of `plan`: inputs, outputs, then an operand for each iota step
/// in order, whose offset is the value of the iota.
void plan_dims(const RowProgram& program, RowPlan& plan);

/// True if the output may lie in the input's memory, element for element.
bool may_share(const PlanOperand& output, const PlanOperand& input);

}  // namespace stow::cpu
