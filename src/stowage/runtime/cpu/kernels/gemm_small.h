// Products of f32 so small that packing would be most of the work, computed without packing.
// Not a thread's share: gemm.cpp calls gemm_small() instead of one.
#pragma once

#include "stowage/runtime/cpu/kernels/gemm_plan.h"

namespace stow::cpu {

/// True if gemm_small() computes this product: one of f32 in one K block, without a batch or hooks,
/// with at most one dimension of each class.
bool gemm_is_small(const GemmPlan& plan);

/// Computes the product. a and b are the plan's operands, exchanged if it is swapped. The bits are
/// those of gemm.h.
void gemm_small(const GemmPlan& plan, const float* a, const float* b, float* c);

}  // namespace stow::cpu
