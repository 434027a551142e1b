#include "stowage/runtime/cpu/kernels/row_program.h"

#include <algorithm>

#include "stowage/base/error.h"
#include "stowage/runtime/cpu/kernels/row_calls.h"
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

void run_plan(const RowPlan& plan, const RowPlan& careful, std::span<const std::byte* const> inputs,
              std::span<std::byte* const> outputs, void* scratch, int threads) {
  run_row_plan(are_apart(plan, inputs, outputs) ? plan : careful, inputs.data(), outputs.data(),
               static_cast<std::byte*>(scratch), std::max(1, threads));
}

}  // namespace

CompiledRowProgram::CompiledRowProgram(const RowProgram& program)
    : n_inputs_(program.inputs.size()), n_outputs_(program.outputs.size()) {
  std::optional<UnrolledRows> unrolled = unroll_turned(program);
  const RowProgram& made = unrolled ? unrolled->program : program;
  plan_ = std::make_shared<const RowPlan>(compile_row_plan(made, false));
  careful_plan_ = plan_->must_differ.empty()
                      ? plan_
                      : std::make_shared<const RowPlan>(compile_row_plan(made, true));
  if (!unrolled) return;
  inputs_ = std::move(unrolled->inputs);
  outputs_ = std::move(unrolled->outputs);
}

int64_t CompiledRowProgram::scratch_bytes(int threads) const {
  const auto bytes = [&](const RowPlan& plan) {
    return plan.shared_bytes_of(threads) + std::max(1, threads) * plan.thread_bytes_of(threads);
  };
  return std::max(bytes(*plan_), bytes(*careful_plan_));
}

void CompiledRowProgram::run(std::span<const std::byte* const> inputs,
                             std::span<std::byte* const> outputs, void* scratch,
                             int threads) const {
  STOW_CHECK(inputs.size() == n_inputs_ && outputs.size() == n_outputs_,
             "{} inputs and {} outputs for {} and {}", inputs.size(), outputs.size(), n_inputs_,
             n_outputs_);
  STOW_CHECK(reinterpret_cast<uintptr_t>(scratch) % 64 == 0);
  if (outputs_.empty()) return run_plan(*plan_, *careful_plan_, inputs, outputs, scratch, threads);
  std::vector<const std::byte*> read;
  for (const UnrolledRows::Base& b : inputs_) read.push_back(inputs[b.operand] + b.offset_bytes);
  std::vector<std::byte*> written;
  for (const UnrolledRows::Base& b : outputs_)
    written.push_back(outputs[b.operand] + b.offset_bytes);
  run_plan(*plan_, *careful_plan_, read, written, scratch, threads);
}

RowProgramRunner::RowProgramRunner(const RowProgram& program, int threads)
    : program_(program), threads_(threads) {
  const CompiledRowProgram& p = program_;
  calls_ = RowCalls::make(p.plan_, threads, p.inputs_, p.outputs_);
  careful_calls_ = p.careful_plan_ == p.plan_
                       ? nullptr
                       : RowCalls::make(p.careful_plan_, threads, p.inputs_, p.outputs_);
  for (const auto& [k, i] : p.plan_->must_differ) {
    const auto output = static_cast<size_t>(k), input = static_cast<size_t>(i);
    if (p.outputs_.empty())
      must_differ_.push_back({output, input, 0});
    else
      must_differ_.push_back({p.outputs_[output].operand, p.inputs_[input].operand,
                              p.outputs_[output].offset_bytes - p.inputs_[input].offset_bytes});
  }
}

RowProgramRunner::~RowProgramRunner() = default;

void RowProgramRunner::run(std::span<const std::byte* const> inputs,
                           std::span<std::byte* const> outputs, void* scratch) {
  RowCalls* calls = calls_.get();
  for (const Pair& pair : must_differ_)
    if (inputs[pair.input] - outputs[pair.output] == pair.offset) calls = careful_calls_.get();
  if (!calls || calls->streams()) return program_.run(inputs, outputs, scratch, threads_);
  calls->run(inputs.data(), outputs.data(), static_cast<std::byte*>(scratch));
}

RowCalls* RowProgramRunner::only_calls() const {
  return calls_ && must_differ_.empty() && !calls_->may_stream() ? calls_.get() : nullptr;
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
