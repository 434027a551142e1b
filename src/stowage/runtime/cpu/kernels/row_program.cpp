#include "stowage/runtime/cpu/kernels/row_program.h"

#include <algorithm>

#include "stowage/base/error.h"
#include "stowage/runtime/cpu/kernels/row_plan.h"

namespace stow::cpu {

namespace {

bool are_apart(const RowPlan& plan, std::span<const std::byte* const> inputs,
               std::span<std::byte* const> outputs) {
  return std::none_of(
      plan.must_differ.begin(), plan.must_differ.end(), [&](const std::pair<int, int>& pair) {
        return outputs[static_cast<size_t>(pair.first)] == inputs[static_cast<size_t>(pair.second)];
      });
}

}  // namespace

CompiledRowProgram::CompiledRowProgram(const RowProgram& program)
    : plan_(std::make_shared<const RowPlan>(compile_row_plan(program, false))) {
  careful_plan_ = plan_->must_differ.empty()
                      ? plan_
                      : std::make_shared<const RowPlan>(compile_row_plan(program, true));
}

int64_t CompiledRowProgram::scratch_bytes(int threads) const {
  const auto bytes = [&](const RowPlan& plan) {
    return plan.shared_bytes + std::max(1, threads) * plan.thread_bytes;
  };
  return std::max(bytes(*plan_), bytes(*careful_plan_));
}

void CompiledRowProgram::run(std::span<const std::byte* const> inputs,
                             std::span<std::byte* const> outputs, void* scratch,
                             int threads) const {
  STOW_CHECK(inputs.size() == static_cast<size_t>(plan_->n_inputs) &&
                 outputs.size() == static_cast<size_t>(plan_->n_outputs),
             "{} inputs and {} outputs for {} and {}", inputs.size(), outputs.size(),
             plan_->n_inputs, plan_->n_outputs);
  STOW_CHECK(reinterpret_cast<uintptr_t>(scratch) % 64 == 0);
  run_row_plan(are_apart(*plan_, inputs, outputs) ? *plan_ : *careful_plan_, inputs.data(), outputs.data(),
               static_cast<std::byte*>(scratch), std::max(1, threads));
}

RowBlocks::RowBlocks(const RowProgram& program)
    : plan_(std::make_shared<const RowPlan>(compile_row_blocks(program, false))),
      careful_plan_(plan_->must_differ.empty()
                        ? plan_
                        : std::make_shared<const RowPlan>(compile_row_blocks(program, true))) {}

bool RowBlocks::whole_rows() const { return plan_->whole_rows; }

int64_t RowBlocks::scratch_bytes() const {
  return std::max(plan_->thread_bytes, careful_plan_->thread_bytes);
}

void RowBlocks::run(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
                    void* scratch, int64_t row, int64_t row_end, int64_t col,
                    int64_t col_end) const {
  run_row_block(are_apart(*plan_, inputs, outputs) ? *plan_ : *careful_plan_, inputs.data(),
                outputs.data(), static_cast<std::byte*>(scratch), row, row_end, col, col_end);
}

int64_t row_program_scratch_bytes(const RowProgram& program, int threads) {
  return CompiledRowProgram(program).scratch_bytes(threads);
}

void run_row_program(const RowProgram& program, std::span<const std::byte* const> inputs,
                     std::span<std::byte* const> outputs, void* scratch, int threads) {
  CompiledRowProgram(program).run(inputs, outputs, scratch, threads);
}

}  // namespace stow::cpu
