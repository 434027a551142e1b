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
        for (const View& view : *views) {
          const Buffer& buffer = schedule_.buffers[view.buffer.index()];
          step.operands.push_back({view.buffer.index(), view.offset_bytes, view.terms,
                                   buffer.apart ? buffer.slot_bytes : 0, buffer.each});
        }
      step.has_scratch = kernel->scratch.valid();
      if (step.has_scratch) {
        step.scratch = kernel->scratch.index();
        step.scratch_each = schedule_.buffers[step.scratch].each;
      }
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
  const auto place = [&](size_t buffer, LoopId each) {
    return plan_.offsets[buffer][static_cast<size_t>(frame.iterations[each.index()])];
  };
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
      int64_t offset = operand.offset_bytes;
      for (const LoopTerm& term : operand.terms) {
        int64_t slot = term.start + term.step * frame.iterations[term.loop.index()];
        if (term.modulo > 0) slot %= term.modulo;
        offset += slot * term.stride_bytes;
      }
      if (operand.slot_bytes > 0)
        offset = plan_.offsets[operand.buffer][static_cast<size_t>(offset / operand.slot_bytes)] +
                 offset % operand.slot_bytes;
      if (operand.each.valid()) offset += place(operand.buffer, operand.each);
      std::byte* address = frame.bases[operand.buffer] + offset;
      if (i < step.n_inputs)
        frame.in.push_back(address);
      else
        frame.out.push_back(address);
    }
    std::byte* scratch = step.has_scratch ? frame.bases[step.scratch] : nullptr;
    if (step.scratch_each.valid()) scratch += place(step.scratch, step.scratch_each);
    step.kernel->run(frame.in, frame.out, scratch);
  }
}

std::vector<DeviceBufferPtr> Program::run(Device& device,
                                          std::span<const DeviceBufferPtr> arguments) const {
  STOW_CHECK(arguments.size() == schedule_.inputs.size());
  Frame frame;
  frame.bases.resize(schedule_.buffers.size(), nullptr);
  frame.iterations.resize(schedule_.n_loops, 0);

  // Outputs that share an arena's bytes make it theirs; else the device's kept arena serves.
  const size_t n = schedule_.buffers.size();
  std::vector<DeviceBufferPtr> by_buffer(n);
  std::array<std::vector<ByteRange>, kNumMemoryKinds> kept;
  std::array<std::vector<size_t>, kNumMemoryKinds> kept_buffers;
  for (size_t b = 0; b < n; ++b) {
    const Buffer& buffer = schedule_.buffers[b];
    const auto kind = static_cast<size_t>(buffer.kind);
    if (buffer.role == BufferRole::kInput) {
      by_buffer[b] = arguments[static_cast<size_t>(buffer.index)];
    } else if (buffer.separate) {
      by_buffer[b] = device.allocate(buffer.bytes, buffer.kind);
    } else if (buffer.role == BufferRole::kOutput) {
      kept[kind].push_back({plan_.offsets[b][0], plan_.offsets[b][0] + buffer.bytes});
      kept_buffers[kind].push_back(b);
    }
  }
  std::array<DeviceBufferPtr, kNumMemoryKinds> arenas;
  for (size_t kind = 0; kind < arenas.size(); ++kind)
    if (const int64_t bytes = plan_.arena_bytes[kind]; bytes > 0)
      arenas[kind] = kept[kind].empty()
                         ? device.borrow_arena(bytes, static_cast<MemoryKind>(kind))
                         : device.allocate(bytes, static_cast<MemoryKind>(kind));
  for (size_t b = 0; b < n; ++b) {
    const Buffer& buffer = schedule_.buffers[b];
    const DeviceBufferPtr& arena = arenas[static_cast<size_t>(buffer.kind)];
    if (by_buffer[b])
      frame.bases[b] = by_buffer[b]->data();
    else if (arena)
      frame.bases[b] = arena->data() + (buffer.apart || buffer.each.valid() ? 0 : plan_.offsets[b][0]);
  }
  run_steps(steps_, frame);

  for (size_t kind = 0; kind < arenas.size(); ++kind) {
    if (kept[kind].empty()) continue;
    std::vector<DeviceBufferPtr> parts =
        arenas[kind] ? device.split(std::move(arenas[kind]), kept[kind])
                     : std::vector<DeviceBufferPtr>();
    for (size_t i = 0; i < parts.size(); ++i)
      by_buffer[kept_buffers[kind][i]] = std::move(parts[i]);
  }
  std::vector<DeviceBufferPtr> results;
  for (const View& view : schedule_.outputs) results.push_back(by_buffer[view.buffer.index()]);
  return results;
}

}  // namespace stow
