// One thread's share of a product, for the best instruction set of this machine.
// Not public: gemm.cpp calls it.
#pragma once

#include <cstdint>
#include <optional>

#include "stowage/runtime/cpu/kernels/gemm_plan.h"

namespace stow::cpu {

/// Runs tasks [first_task, last_task) of the plan. `workspace` is this thread's part of the
/// workspace. a and b are the plan's operands, exchanged if it is swapped.
using GemmThreadFn = void (*)(const GemmPlan& plan, const void* a, const void* b, void* c,
                              void* workspace, int64_t first_task, int64_t last_task);

void gemm_thread_f32(const GemmPlan& plan, const void* a, const void* b, void* c, void* workspace,
                     int64_t first_task, int64_t last_task);
/// True if kernels run for AVX-512.
bool gemm_target_is_avx512();
/// Returns the fastest form of this machine for products of two bf16. Intel's processors multiply
/// pairs more slowly than f32; they use tiles, or kPlain.
GemmForm bf16_form();
/// Returns the fastest form of this machine for products of f32 for which gemm_may_triple() is
/// true.
GemmForm split_form();
/// Returns the form in which this machine computes a product.
GemmForm gemm_form(const GemmSpec& spec);
/// Sets the result of bf16_form(), for tests, and with it that of split_form(): kTripled if `form`
/// is kTiled, else kPlain. nullopt restores the fastest form. Returns false if the machine cannot
/// use the form; bf16_form() then returns kPlain.
bool set_bf16_form_for_test(std::optional<GemmForm> form);
/// True if kernels may use the machine's products of pairs (AVX-512-BF16), or of tiles (AMX).
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
