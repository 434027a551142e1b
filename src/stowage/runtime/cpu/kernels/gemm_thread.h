// One thread's share of a product, for the best instruction set of this machine.
// Not public: gemm.cpp calls it.
#pragma once

#include <cstdint>

#include "stowage/runtime/cpu/kernels/gemm_plan.h"

namespace stow::cpu {

/// Runs tasks [first_task, last_task) of the plan; `workspace` is this thread's thread_bytes.
/// a and b are the plan's: exchanged where it is swapped.
using GemmThreadFn = void (*)(const GemmPlan& plan, const void* a, const void* b, void* c,
                              void* workspace, int64_t first_task, int64_t last_task);

void gemm_thread_f32(const GemmPlan& plan, const void* a, const void* b, void* c, void* workspace,
                     int64_t first_task, int64_t last_task);
/// Whether kernels run for AVX-512.
bool gemm_target_is_avx512();
/// Whether this machine multiplies pairs of bf16; and the kernel that does, for a and b of bf16.
bool has_bf16_products();
void gemm_thread_bf16(const GemmPlan& plan, const void* a, const void* b, void* c, void* workspace,
                      int64_t first_task, int64_t last_task);
/// Likewise for tiles of bf16; tests may go without.
bool has_tile_products();
void allow_tile_products_for_test(bool allowed);
void gemm_thread_tiles(const GemmPlan& plan, const void* a, const void* b, void* c, void* workspace,
                       int64_t first_task, int64_t last_task);
void gemm_thread_f64(const GemmPlan& plan, const void* a, const void* b, void* c, void* workspace,
                     int64_t first_task, int64_t last_task);

/// Writes zeros into the tasks' elements of C, of any dtype (K is empty).
void gemm_zero(const GemmPlan& plan, void* c, int64_t first_task, int64_t last_task);

/// Runs a product's tasks element by element: of integers, and of floats with f64 on one side only.
void gemm_thread_int(const GemmPlan& plan, const void* a, const void* b, void* c, void* workspace,
                     int64_t first_task, int64_t last_task);
void gemm_thread_wide(const GemmPlan& plan, const void* a, const void* b, void* c, void* workspace,
                      int64_t first_task, int64_t last_task);

}  // namespace stow::cpu
