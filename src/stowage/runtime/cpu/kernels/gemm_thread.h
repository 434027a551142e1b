// One thread's share of a product, for the best instruction set of this machine.
// Not public: gemm.cpp calls it.
#pragma once

#include <cstdint>
#include <optional>

#include "stowage/runtime/cpu/kernels/gemm_plan.h"

namespace stow::cpu {

/// Runs tasks [first_task, last_task) of the plan; `workspace` is this thread's thread_bytes.
/// a and b are the plan's: exchanged where it is swapped.
using GemmThreadFn = void (*)(const GemmPlan& plan, const void* a, const void* b, void* c,
                              void* workspace, int64_t first_task, int64_t last_task);

void gemm_thread_f32(const GemmPlan& plan, const void* a, const void* b, void* c, void* workspace,
                     int64_t first_task, int64_t last_task);
/// True if kernels run for AVX-512.
bool gemm_target_is_avx512();
/// Returns the form in which this machine multiplies two bf16 best. Intel's processors multiply
/// pairs more slowly than f32, and use tiles.
GemmForm bf16_form();
/// Returns the form in which this machine multiplies two f32 that may be split.
GemmForm split_form();
/// Returns the form in which this machine computes a product.
GemmForm gemm_form(const GemmSpec& spec);
/// Sets the form from now on, that of f32 too if it is that of tiles; nullopt sets the best again.
/// Returns false if the machine cannot use the form.
bool set_bf16_form_for_test(std::optional<GemmForm> form);
/// True if the machine can multiply pairs, or tiles.
bool can_multiply_pairs();
bool can_multiply_tiles();
void gemm_thread_bf16(const GemmPlan& plan, const void* a, const void* b, void* c, void* workspace,
                      int64_t first_task, int64_t last_task);
void gemm_thread_tiles(const GemmPlan& plan, const void* a, const void* b, void* c, void* workspace,
                       int64_t first_task, int64_t last_task);
void gemm_thread_triples(const GemmPlan& plan, const void* a, const void* b, void* c,
                         void* workspace, int64_t first_task, int64_t last_task);
void gemm_thread_f64(const GemmPlan& plan, const void* a, const void* b, void* c, void* workspace,
                     int64_t first_task, int64_t last_task);

void gemm_thread_int(const GemmPlan& plan, const void* a, const void* b, void* c, void* workspace,
                     int64_t first_task, int64_t last_task);

}  // namespace stow::cpu
