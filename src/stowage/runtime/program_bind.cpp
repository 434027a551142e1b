// Binding of a program: kernels made ready to run, and how their addresses change in loops.
#include <algorithm>
#include <cassert>
#include <numeric>
#include <utility>

#include "stowage/ir/schedule_walk.h"
#include "stowage/runtime/program.h"

namespace stow {
namespace {

constexpr int64_t kMostTurns = 8;  // iterations after which an address is as before

}  // namespace

bool Program::has_places(const Buffer& buffer) {
  return buffer.independent_slots || !buffer.loop_dims.empty();
}

Program::Operand Program::bind_operand(const View& view) const {
  const Buffer& buffer = schedule_.buffers[view.buffer.index()];
  Operand operand{view.buffer.index(), view.offset_bytes, view.terms};
  if (has_places(buffer)) operand.places = &buffer;
  operand.in_arena = buffer.role != BufferRole::kInput && !buffer.outside_arena;
  operand.high_bytes = view.elems() > 0 ? dtype_bytes(view.dtype) : 0;
  for (size_t d = 0; d < view.dims.size() && view.elems() > 0; ++d) {
    const int64_t reach = (view.dims[d] - 1) * view.strides[d] * dtype_bytes(view.dtype);
    (reach < 0 ? operand.low_bytes : operand.high_bytes) += reach;
  }
  return operand;
}

Program::MovingOperand Program::moving_operand(const Step& step, size_t k, LoopId innermost) const {
  const Operand& operand = step.operands[k];
  MovingOperand moving{k, {}};
  int64_t period = 1;
  for (const LoopTerm& term : operand.terms) {
    if (term.loop != innermost || term.modulo == 0) continue;
    if (term.start < 0 || term.step < 0) return moving;
    period = std::lcm(period, std::min(term.modulo, kMostTurns + 1));
  }
  if (operand.places || period > kMostTurns) return moving;
  moving.deltas.assign(static_cast<size_t>(period), 0);
  for (const LoopTerm& term : operand.terms)
    for (int64_t i = 0; i < period && term.loop == innermost; ++i)
      moving.deltas[static_cast<size_t>(i)] +=
          term.bytes_at(i + period) - term.bytes_at(i + period - 1);
  return moving;
}

Program::Step Program::bind_kernel(const Kernel& kernel, LoopId innermost) {
  Step step;
  step.source = &kernel;
  if (exchanges_data(kernel)) step.stream = StreamKind::kCollective;
  if (kernel.phase != MovePhase::kWhole) {
    step.phase = kernel.phase;
    step.stream = stream_of(kernel, schedule_.buffers);
    step.transfer = static_cast<size_t>(kernel.transfer);
    n_transfers_ = std::max(n_transfers_, step.transfer + 1);
  }
  step.n_inputs = kernel.inputs.size();
  step.n_outputs = kernel.outputs.size();
  for (const auto* views : {&kernel.inputs, &kernel.outputs})
    for (const View& view : *views) step.operands.push_back(bind_operand(view));
  step.has_scratch = kernel.scratch.valid();
  if (step.has_scratch) {
    step.scratch_bytes = kernel.scratch_bytes;
    View scratch{kernel.scratch, DType::kU8};
    scratch.dims = {kernel.scratch_bytes};
    scratch.strides = {1};
    step.operands.push_back(bind_operand(scratch));
  }
  if (kernel.op == OpKind::kDevicePut) {
    step.move = std::make_unique<MoveShape>(MoveShape{kernel.inputs[0].dtype, kernel.inputs[0].dims,
                                                      kernel.inputs[0].strides,
                                                      kernel.outputs[0].strides});
    return step;
  }
  if (comm::is_collective(kernel)) {
    step.collective = std::make_unique<comm::BoundCollective>(kernel);
  } else {
    // The views, which scratch depends on, are those that it was planned for.
    assert(target_->scratch_bytes(kernel) <= kernel.scratch_bytes);
    step.kernel = target_->bind(kernel);
  }
  step.runs_here = step.kernel && !target_->submits_kernels();
  step.first_address = n_addresses_;
  n_addresses_ += step.operands.size();
  for (size_t k = 0; k < step.operands.size() && innermost.valid(); ++k) {
    const Operand& operand = step.operands[k];
    if (operand.has_term_of(innermost) || operand.places)
      step.moving.push_back(moving_operand(step, k, innermost));
  }
  find_rotating(step);
  return step;
}

void Program::find_rotating(Step& step) {
  for (size_t k = 0; k < step.operands.size(); ++k) {
    const Operand& operand = step.operands[k];
    if (!operand.places || !operand.places->loop_dims.empty() || operand.terms.empty()) continue;
    const LoopId loop = operand.terms[0].loop;
    int64_t period = 1;
    for (const LoopTerm& term : operand.terms) {
      const bool turns = term.loop == loop && term.modulo > 0 && term.start >= 0 && term.step >= 0;
      period = turns ? std::lcm(period, std::min(term.modulo, kMostTurns + 1)) : kMostTurns + 1;
    }
    if (period > kMostTurns) continue;
    step.rotating.push_back({k, loop, static_cast<size_t>(period), n_addresses_});
    n_addresses_ += static_cast<size_t>(period) - 1;
  }
}

bool Program::find_moving(const std::vector<Step>& steps, LoopId loop,
                          LoopSteps& to) const {
  for (const Step& step : steps) {
    for (const RotatingOperand& rotating : step.rotating)
      if (rotating.loop == loop)
        to.rotating.push_back(
            {step.first_address + rotating.operand, rotating.first_other, rotating.period});
    for (size_t k = 0; k < step.operands.size(); ++k) {
      const Operand& operand = step.operands[k];
      if (operand.places) {
        const bool stays = operand.places->loop_dims.empty() && operand.terms.empty();
        const bool turns = std::any_of(step.rotating.begin(), step.rotating.end(),
                                       [&](const RotatingOperand& t) { return t.operand == k; });
        if (!stays && !turns) return false;
        continue;
      }
      if (!operand.has_term_of(loop)) continue;
      MovingOperand moving = moving_operand(step, k, loop);
      if (moving.deltas.empty()) return false;
      to.moving.push_back({step.first_address + k, std::move(moving.deltas)});
    }
    for (const std::vector<Step>& part : step.parts)
      if (!find_moving(part, loop, to)) return false;
  }
  return true;
}

bool Program::describe(const std::vector<Step>& steps, std::vector<LoopStep>& to) const {
  for (const Step& step : steps) {
    if (!(step.guard == Guard{})) return false;
    LoopStep made;
    made.first_address = step.first_address;
    switch (step.kind) {
      case StepKind::kKernel:
        if (!step.runs_here) return false;
        made.kernel = step.kernel.get();
        made.n_inputs = step.n_inputs;
        made.n_outputs = step.n_outputs;
        made.has_scratch = step.has_scratch;
        break;
      case StepKind::kLoop:
      case StepKind::kOpenLoop: {
        if (step.trip_count == 0) continue;
        auto loop = std::make_shared<LoopSteps>();
        if (!describe_loop(step, *loop)) return false;
        made.loop = std::move(loop);
        break;
      }
      case StepKind::kBranch:
        made.is_bool_index = step.is_bool_index;
        made.alternatives.resize(step.parts.size());
        for (size_t i = 0; i < step.parts.size(); ++i)
          if (!describe(step.parts[i], made.alternatives[i])) return false;
        break;
    }
    to.push_back(std::move(made));
  }
  return true;
}

bool Program::describe_loop(const Step& loop, LoopSteps& to) const {
  to.trip_count = loop.trip_count;
  if (!describe(loop.parts[0], to.body) || !find_moving(loop.parts[0], loop.loop, to))
    return false;
  if (loop.kind == StepKind::kLoop) return true;
  to.predicate = loop.first_address;
  return describe(loop.parts[1], to.condition) && find_moving(loop.parts[1], loop.loop, to) &&
         to.moving.empty() && to.rotating.empty() && !loop.operands[0].places &&
         !loop.operands[0].has_term_of(loop.loop);
}

// The host of a target with memory of its own does not read indices and predicates where they lie.
std::unique_ptr<BoundLoop> Program::bind_target_loop(const Step& loop) const {
  LoopSteps steps;
  if (!reads_directly_ || loop.trip_count == 0 || !describe_loop(loop, steps)) return nullptr;
  return target_->bind_loop(steps);
}

// Loops within one that the target runs are never run by themselves.
void Program::drop_target_loops(std::vector<Step>& steps) {
  for (Step& step : steps) {
    step.target_loop.reset();
    for (std::vector<Step>& part : step.parts) drop_target_loops(part);
  }
}

std::vector<Program::Step> Program::bind(const std::vector<Instruction>& body, LoopId innermost) {
  std::vector<Step> steps;
  for (const Instruction& instruction : body) {
    Step step;
    if (const Kernel* kernel = instruction.kernel()) {
      step = bind_kernel(*kernel, innermost);
    } else if (const Loop* loop = instruction.loop()) {
      const bool open = loop->trip_count == Loop::kOpen;
      step.kind = open ? StepKind::kOpenLoop : StepKind::kLoop;
      step.loop = loop->id;
      step.trip_count = loop->trip_count;
      step.parts.push_back(bind(loop->body, loop->id));
      if (open) {
        step.parts.push_back(bind(loop->condition, loop->id));
        step.operands.push_back(bind_operand(loop->predicate));
        step.first_address = n_addresses_++;
      }
      step.target_loop = bind_target_loop(step);
      if (step.target_loop)
        for (std::vector<Step>& part : step.parts) drop_target_loops(part);
    } else {
      const Branch& branch = *instruction.branch();
      step.kind = StepKind::kBranch;
      step.is_bool_index = branch.index.dtype == DType::kBool;
      step.operands.push_back(bind_operand(branch.index));
      step.first_address = n_addresses_++;
      for (const auto& alternative : branch.alternatives)
        step.parts.push_back(bind(alternative, LoopId()));
    }
    step.guard = instruction.guard;
    steps.push_back(std::move(step));
  }
  return steps;
}

}  // namespace stow
