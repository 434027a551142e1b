#include "stowage/runtime/program.h"

#include <algorithm>

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
    if (const Kernel* kernel = instruction.kernel()) {
      step.kernel = std::make_unique<cpu::BoundKernel>(*kernel, threads);
      step.n_inputs = kernel->inputs.size();
      for (const auto* views : {&kernel->inputs, &kernel->outputs})
        for (const View& view : *views)
          step.operands.push_back({view.buffer.index(), view.offset_bytes, view.terms});
      step.has_scratch = kernel->scratch.valid();
      if (step.has_scratch) step.scratch = kernel->scratch.index();
    } else {
      step.loop = instruction.loop()->id;
      step.trip_count = instruction.loop()->trip_count;
      step.body = bind(instruction.loop()->body, threads);
    }
    steps.push_back(std::move(step));
  }
  return steps;
}

void Program::run_steps(const std::vector<Step>& steps, Frame& frame) const {
  for (const Step& step : steps) {
    if (!step.kernel) {
      for (int64_t i = 0; i < step.trip_count; ++i) {
        frame.iterations[step.loop.index()] = i;
        run_steps(step.body, frame);
      }
      continue;
    }
    frame.in.clear();
    frame.out.clear();
    for (size_t i = 0; i < step.operands.size(); ++i) {
      const Operand& operand = step.operands[i];
      std::byte* address = frame.bases[operand.buffer] + operand.offset_bytes;
      for (const LoopTerm& term : operand.terms) {
        int64_t slot = term.start + term.step * frame.iterations[term.loop.index()];
        if (term.modulo > 0) slot %= term.modulo;
        address += slot * term.stride_bytes;
      }
      if (i < step.n_inputs)
        frame.in.push_back(address);
      else
        frame.out.push_back(address);
    }
    step.kernel->run(frame.in, frame.out, step.has_scratch ? frame.bases[step.scratch] : nullptr);
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
