#include "stowage/runtime/program.h"

#include <algorithm>
#include <cstring>

namespace stow {

struct Program::Frame {
  std::vector<std::byte*> bases;     // of buffers
  std::vector<int64_t> iterations;   // of loops
  std::vector<const std::byte*> in;  // scratch lists, kept to save allocations
  std::vector<std::byte*> out;
};

Program::Program(Schedule schedule, MemoryPlan plan, int threads)
    : schedule_(std::move(schedule)), plan_(std::move(plan)) {
  steps_ = bind(schedule_.instructions, threads);
}

std::vector<Program::Step> Program::bind(const std::vector<Instruction>& body, int threads) const {
  std::vector<Step> steps;
  for (const Instruction& instruction : body) {
    Step step;
    const auto take = [&](const View& view) {
      step.operands.push_back({view.buffer.index(), view.offset_bytes, view.terms});
    };
    if (const Kernel* kernel = instruction.kernel()) {
      step.kernel = std::make_unique<cpu::BoundKernel>(*kernel, threads);
      step.n_inputs = kernel->inputs.size();
      for (const auto* views : {&kernel->inputs, &kernel->outputs})
        for (const View& view : *views) take(view);
      step.has_scratch = kernel->scratch.valid();
      if (step.has_scratch) step.scratch = kernel->scratch.index();
    } else if (const Loop* loop = instruction.loop()) {
      const bool open = loop->trip_count == Loop::kOpen;
      step.kind = open ? StepKind::kOpenLoop : StepKind::kLoop;
      step.loop = loop->id;
      step.trip_count = loop->trip_count;
      step.parts.push_back(bind(loop->body, threads));
      if (open) {
        step.parts.push_back(bind(loop->condition, threads));
        take(loop->predicate);
      }
    } else {
      const Branch& branch = *instruction.branch();
      step.kind = StepKind::kBranch;
      step.is_bool_index = branch.index.dtype == DType::kBool;
      take(branch.index);
      for (const auto& alternative : branch.alternatives)
        step.parts.push_back(bind(alternative, threads));
    }
    steps.push_back(std::move(step));
  }
  return steps;
}

std::byte* Program::address(const Operand& operand, const Frame& frame) {
  std::byte* address = frame.bases[operand.buffer] + operand.offset_bytes;
  for (const LoopTerm& term : operand.terms) {
    int64_t slot = term.start + term.step * frame.iterations[term.loop.index()];
    if (term.modulo > 0) slot %= term.modulo;
    address += slot * term.stride_bytes;
  }
  return address;
}

void Program::run_kernel(const Step& step, Frame& frame) const {
  frame.in.clear();
  frame.out.clear();
  for (size_t i = 0; i < step.operands.size(); ++i) {
    std::byte* const at = address(step.operands[i], frame);
    if (i < step.n_inputs)
      frame.in.push_back(at);
    else
      frame.out.push_back(at);
  }
  step.kernel->run(frame.in, frame.out, step.has_scratch ? frame.bases[step.scratch] : nullptr);
}

void Program::run_steps(const std::vector<Step>& steps, Frame& frame) const {
  for (const Step& step : steps) {
    switch (step.kind) {
      case StepKind::kKernel:
        run_kernel(step, frame);
        break;
      case StepKind::kLoop:
        for (int64_t i = 0; i < step.trip_count; ++i) {
          frame.iterations[step.loop.index()] = i;
          run_steps(step.parts[0], frame);
        }
        break;
      case StepKind::kOpenLoop:
        for (int64_t i = 0;; ++i) {
          frame.iterations[step.loop.index()] = i;
          run_steps(step.parts[1], frame);
          if (*address(step.operands[0], frame) == std::byte{0}) break;
          run_steps(step.parts[0], frame);
        }
        break;
      case StepKind::kBranch: {
        const std::byte* const at = address(step.operands[0], frame);
        int32_t index = 0;
        if (step.is_bool_index)
          index = *at != std::byte{0};
        else
          std::memcpy(&index, at, sizeof index);
        const auto last = static_cast<int32_t>(step.parts.size()) - 1;
        run_steps(step.parts[static_cast<size_t>(std::clamp(index, 0, last))], frame);
        break;
      }
    }
  }
}

std::vector<DeviceBufferPtr> Program::run(Device& device,
                                          std::span<const DeviceBufferPtr> arguments) const {
  STOW_CHECK(arguments.size() == schedule_.inputs.size());
  Frame frame;
  frame.bases.resize(schedule_.buffers.size(), nullptr);
  frame.iterations.resize(schedule_.n_loops, 0);

  // Outputs that share the arena's bytes make it theirs; else the device's kept arena serves.
  std::vector<ByteRange> kept;
  std::vector<DeviceBufferPtr> separate(schedule_.buffers.size());
  for (size_t b = 0; b < schedule_.buffers.size(); ++b) {
    const Buffer& buffer = schedule_.buffers[b];
    if (buffer.role != BufferRole::kOutput) continue;
    if (is_separate_output(buffer))
      separate[b] = device.allocate(buffer.bytes);
    else
      kept.push_back({plan_.offsets[b], plan_.offsets[b] + buffer.bytes});
  }
  DeviceBufferPtr arena = kept.empty() ? device.borrow_arena(plan_.arena_bytes)
                                       : device.allocate(plan_.arena_bytes);
  for (size_t b = 0; b < schedule_.buffers.size(); ++b) {
    const Buffer& buffer = schedule_.buffers[b];
    frame.bases[b] = buffer.role == BufferRole::kInput
                         ? arguments[static_cast<size_t>(buffer.index)]->data()
                     : separate[b] ? separate[b]->data()
                                   : arena->data() + plan_.offsets[b];
  }
  run_steps(steps_, frame);

  std::vector<DeviceBufferPtr> parts;
  if (!kept.empty()) parts = device.split(std::move(arena), kept);
  std::vector<DeviceBufferPtr> results;
  size_t next = 0;
  std::vector<DeviceBufferPtr> by_buffer = separate;
  for (size_t b = 0; b < schedule_.buffers.size(); ++b) {
    const Buffer& buffer = schedule_.buffers[b];
    if (buffer.role == BufferRole::kOutput && !separate[b]) by_buffer[b] = parts[next++];
    if (buffer.role == BufferRole::kInput)
      by_buffer[b] = arguments[static_cast<size_t>(buffer.index)];
  }
  for (const View& view : schedule_.outputs) results.push_back(by_buffer[view.buffer.index()]);
  return results;
}

}  // namespace stow
