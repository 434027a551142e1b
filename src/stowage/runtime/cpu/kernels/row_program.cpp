#include "stowage/runtime/cpu/kernels/row_program.h"

#include <algorithm>

#include "stowage/base/error.h"
#include "stowage/runtime/cpu/kernels/row_plan.h"

namespace stow::cpu {

CompiledRowProgram::CompiledRowProgram(const RowProgram& program)
    : plan_(std::make_shared<const RowPlan>(compile_row_plan(program))) {}

int64_t CompiledRowProgram::scratch_bytes(int threads) const {
  return plan_->shared_bytes + std::max(1, threads) * plan_->thread_bytes;
}

void CompiledRowProgram::run(std::span<const std::byte* const> inputs,
                             std::span<std::byte* const> outputs, void* scratch,
                             int threads) const {
  STOW_CHECK(inputs.size() == static_cast<size_t>(plan_->n_inputs) &&
                 outputs.size() == static_cast<size_t>(plan_->n_outputs),
             "{} inputs and {} outputs for {} and {}", inputs.size(), outputs.size(),
             plan_->n_inputs, plan_->n_outputs);
  STOW_CHECK(reinterpret_cast<uintptr_t>(scratch) % 64 == 0);
  run_row_plan(*plan_, inputs.data(), outputs.data(), static_cast<std::byte*>(scratch),
               std::max(1, threads));
}

int64_t row_program_scratch_bytes(const RowProgram& program, int threads) {
  return CompiledRowProgram(program).scratch_bytes(threads);
}

void run_row_program(const RowProgram& program, std::span<const std::byte* const> inputs,
                     std::span<std::byte* const> outputs, void* scratch, int threads) {
  CompiledRowProgram(program).run(inputs, outputs, scratch, threads);
}

}  // namespace stow::cpu
