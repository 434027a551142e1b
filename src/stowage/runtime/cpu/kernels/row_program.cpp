#include "stowage/runtime/cpu/kernels/row_program.h"

#include <algorithm>

#include "stowage/base/error.h"
#include "stowage/runtime/cpu/kernels/nest.h"
#include "stowage/runtime/cpu/kernels/op_families.h"
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

void run_plan(const RowPlan& plan, const RowPlan& aliasing,
              std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
              void* scratch, int threads) {
  run_row_plan(are_apart(plan, inputs, outputs) ? plan : aliasing, inputs.data(), outputs.data(),
               static_cast<std::byte*>(scratch), std::max(1, threads));
}

// The same for a program whose operands are pieces of the original's.
RowOverlaps overlaps_of(const UnrolledRows& unrolled, const RowOverlaps& overlaps) {
  RowOverlaps known(unrolled.outputs.size(), unrolled.inputs.size());
  for (size_t k = 0; k < unrolled.outputs.size(); ++k)
    for (size_t i = 0; i < unrolled.inputs.size(); ++i) {
      const UnrolledRows::Base &out = unrolled.outputs[k], &in = unrolled.inputs[i];
      Overlap overlap = overlaps.of(out.operand, in.operand);
      if (overlap == Overlap::kAlways && out.offset_bytes != in.offset_bytes)
        overlap = Overlap::kNever;
      known.set(k, i, overlap);
    }
  return known;
}

}  // namespace

struct CompiledRowProgram::Copy {
  kernels::Nest<2> nest;  // 0 is the output, 1 the input
  int64_t width;
  bool has_dense_rows;  // on both sides
  int64_t bytes;
};

std::shared_ptr<const CompiledRowProgram::Copy> CompiledRowProgram::find_copy(
    const RowProgram& program) {
  if (program.steps.size() != 2 || program.inputs.size() != 1 || program.outputs.size() != 1)
    return nullptr;
  const Step &load = program.steps[0], &store = program.steps[1];
  const RowOperand &from = program.inputs[0], &to = program.outputs[0];
  if (load.kind != StepKind::kLoad || store.kind != StepKind::kStore || from.dtype != to.dtype)
    return nullptr;
  Copy copy{{}, dtype_bytes(to.dtype), false, dtype_bytes(to.dtype)};
  for (size_t d = 0; d < program.dims.size(); ++d) {
    if (program.dims[d] != 1 && to.strides[d] == 0) return nullptr;
    kernels::add_axis(copy.nest, program.dims[d], {to.strides[d], from.strides[d]});
    copy.bytes *= program.dims[d];
  }
  kernels::sort_by_stride(copy.nest, 0);
  kernels::merge(copy.nest);
  constexpr int64_t kShort = 8;
  copy.has_dense_rows =
      copy.nest.empty() ||
      (copy.nest.back().stride == std::array<int64_t, 2>{1, 1} && copy.nest.back().extent > kShort);
  return std::make_shared<const Copy>(std::move(copy));
}

CompiledRowProgram::CompiledRowProgram(const RowProgram& program, const RowOverlaps& overlaps)
    : copy_(find_copy(program)),
      n_inputs_(program.inputs.size()),
      n_outputs_(program.outputs.size()) {
  std::optional<UnrolledRows> unrolled = unroll_reversed(program);
  const RowProgram& made = unrolled ? unrolled->program : program;
  const RowOverlaps known = unrolled ? overlaps_of(*unrolled, overlaps) : overlaps;
  plan_ = std::make_shared<const RowPlan>(compile_row_plan(made, false, known));
  aliasing_plan_ = plan_->must_differ.empty()
                       ? plan_
                       : std::make_shared<const RowPlan>(compile_row_plan(made, true, known));
  if (!unrolled) return;
  inputs_ = std::move(unrolled->inputs);
  outputs_ = std::move(unrolled->outputs);
}

int64_t CompiledRowProgram::scratch_bytes(int threads) const {
  const auto bytes = [&](const RowPlan& plan) {
    return plan.shared_bytes_of(threads) + std::max(1, threads) * plan.thread_bytes_of(threads);
  };
  return std::max(bytes(*plan_), bytes(*aliasing_plan_));
}

void CompiledRowProgram::run(std::span<const std::byte* const> inputs,
                             std::span<std::byte* const> outputs, void* scratch,
                             int threads) const {
  STOW_CHECK(inputs.size() == n_inputs_ && outputs.size() == n_outputs_,
             "{} inputs and {} outputs for {} and {}", inputs.size(), outputs.size(), n_inputs_,
             n_outputs_);
  STOW_CHECK(reinterpret_cast<uintptr_t>(scratch) % 64 == 0);
  // Copies that are written past the caches are left to the plan, which can do that.
  if (copy_ && !(copy_->has_dense_rows && copy_->bytes >= least_streamed_bytes()))
    return kernels::copy_nest(outputs[0], inputs[0], copy_->nest, copy_->width, threads);
  if (outputs_.empty()) return run_plan(*plan_, *aliasing_plan_, inputs, outputs, scratch, threads);
  std::vector<const std::byte*> read;
  for (const UnrolledRows::Base& b : inputs_) read.push_back(inputs[b.operand] + b.offset_bytes);
  std::vector<std::byte*> written;
  for (const UnrolledRows::Base& b : outputs_)
    written.push_back(outputs[b.operand] + b.offset_bytes);
  run_plan(*plan_, *aliasing_plan_, read, written, scratch, threads);
}

RowProgramRunner::RowProgramRunner(const RowProgram& program, int threads,
                                   const RowOverlaps& overlaps)
    : program_(program, overlaps), threads_(threads) {
  const CompiledRowProgram& p = program_;
  calls_ = RowCalls::make(p.plan_, threads, p.inputs_, p.outputs_);
  aliasing_calls_ = p.aliasing_plan_ == p.plan_
                        ? nullptr
                        : RowCalls::make(p.aliasing_plan_, threads, p.inputs_, p.outputs_);
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
    if (inputs[pair.input] - outputs[pair.output] == pair.offset) calls = aliasing_calls_.get();
  if (!calls || calls->streams()) return program_.run(inputs, outputs, scratch, threads_);
  calls->run(inputs.data(), outputs.data(), static_cast<std::byte*>(scratch));
}

RowCalls* RowProgramRunner::only_calls() const {
  return calls_ && must_differ_.empty() && !calls_->may_stream() ? calls_.get() : nullptr;
}

RowBlocks::RowBlocks(const RowProgram& program)
    : plan_(std::make_shared<const RowPlan>(compile_row_blocks(program, false))),
      aliasing_plan_(plan_->must_differ.empty()
                         ? plan_
                         : std::make_shared<const RowPlan>(compile_row_blocks(program, true))) {}

bool RowBlocks::whole_rows() const { return plan_->whole_rows; }

int64_t RowBlocks::scratch_bytes() const {
  return std::max(plan_->thread_bytes, aliasing_plan_->thread_bytes);
}

void RowBlocks::run(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
                    void* scratch, int64_t row, int64_t row_end, int64_t col,
                    int64_t col_end) const {
  run_row_block(are_apart(*plan_, inputs, outputs) ? *plan_ : *aliasing_plan_, inputs.data(),
                outputs.data(), static_cast<std::byte*>(scratch), row, row_end, col, col_end);
}

int64_t row_program_scratch_bytes(const RowProgram& program, int threads,
                                  const RowOverlaps& overlaps) {
  return CompiledRowProgram(program, overlaps).scratch_bytes(threads);
}

}  // namespace stow::cpu
