#include "stowage/runtime/cpu/bound_loop.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "stowage/runtime/cpu/bound_kernel.h"

namespace stow::cpu {

namespace {

constexpr size_t kMostCopies = 8, kMostInstructions = 256;

// Bytes that an argument has moved by after so many iterations.
int64_t moved_by(const std::vector<int64_t>& deltas, size_t iterations) {
  int64_t sum = 0;
  for (size_t i = 1; i <= iterations; ++i) sum += deltas[i % deltas.size()];
  return sum;
}

}  // namespace

std::unique_ptr<BoundLoop> BoundLoop::make(const LoopSteps& steps) {
  std::unique_ptr<BoundLoop> made(new BoundLoop());
  made->add_loop(steps, true);
  return made->has_room_ ? std::move(made) : nullptr;
}

LoopInstruction& BoundLoop::add_instruction(LoopCommand command) {
  moves_.push_back(0);
  LoopInstruction& made = code_.emplace_back();
  made.command = command;
  return made;
}

void BoundLoop::add(const std::vector<LoopStep>& steps) {
  for (const LoopStep& step : steps)
    if (step.kernel)
      add_kernel(step);
    else if (step.loop)
      add_loop(*step.loop, false);
    else
      add_branch(step);
}

void BoundLoop::add_kernel(const LoopStep& step) {
  const size_t n = step.n_inputs + step.n_outputs + (step.has_scratch ? 1 : 0);
  ranges_.push_back({step.first_address, n});
  RowCalls* const calls = static_cast<const BoundKernel*>(step.kernel)->only_calls();
  if (!calls) {
    kernel_instructions_.push_back(std::make_unique<KernelInstruction>(
        KernelInstruction{step.kernel, step.first_address, step.n_inputs, step.n_outputs,
                          step.has_scratch}));
    LoopInstruction& made = add_instruction(LoopCommand::kRunKernel);
    made.context = kernel_instructions_.back().get();
    made.run = [](const void* context) {
      const KernelInstruction& instruction = *static_cast<const KernelInstruction*>(context);
      std::byte** const outputs = instruction.at + instruction.n_inputs;
      instruction.kernel->run({instruction.at, instruction.n_inputs},
                              {outputs, instruction.n_outputs},
                              instruction.has_scratch ? outputs[instruction.n_outputs] : nullptr);
    };
    return;
  }
  rows_.push_back({calls, step.first_address, step.n_inputs, step.n_outputs, step.has_scratch});
  for (const RowCalls::Call& call : calls->calls()) {
    if (call.kind == RowCalls::Call::kSingle) {
      elements_.push_back({code_.size(), static_cast<const Single*>(call.arguments)});
      add_instruction(LoopCommand::kSingle).op = call.single;
      continue;
    }
    call_instructions_.push_back({code_.size(), calls});
    if (call.kind == RowCalls::Call::kMap) {
      LoopInstruction& made = add_instruction(LoopCommand::kCallMap);
      made.map = call.map;
      made.map_arguments = static_cast<const KernelCall*>(call.arguments);
    } else {
      add_instruction(LoopCommand::kCall).call = &call;
    }
  }
}

void BoundLoop::add_read(LoopCommand command, size_t address) {
  ranges_.push_back({address, 1});
  reads_.push_back({code_.size(), address});
  add_instruction(command);
}

// An alternative ends with a jump behind the last one.
void BoundLoop::add_branch(const LoopStep& step) {
  const size_t choice = code_.size();
  const auto from_choice = [&] { return static_cast<int32_t>(code_.size() - choice); };
  const size_t n = step.alternatives.size();
  const bool is_two = step.is_bool_index && n == 2;
  add_read(is_two               ? LoopCommand::kJumpIfTrue
           : step.is_bool_index ? LoopCommand::kJumpByBool
                                : LoopCommand::kJumpByIndex,
           step.first_address);
  std::vector<int32_t> targets;
  std::vector<size_t> ends;
  for (size_t i = 0; i < n; ++i) {
    targets.push_back(from_choice());
    add(step.alternatives[i]);
    if (i + 1 == n) break;
    ends.push_back(code_.size());
    add_instruction(LoopCommand::kJump);
  }
  for (size_t end : ends) code_[end].target = static_cast<int32_t>(code_.size() - end);
  if (is_two) {
    code_[choice].target = targets[1];
    return;
  }
  targets_.push_back(std::move(targets));
  code_[choice].targets = targets_.back().data();
  code_[choice].n_targets = static_cast<int64_t>(n);
}

BoundLoop::ListSizes BoundLoop::list_sizes() const {
  return {code_.size(),  elements_.size(),  call_instructions_.size(),
          reads_.size(), arguments_.size(), movers_.size()};
}

std::vector<size_t> BoundLoop::arguments_of(size_t address, const ListSizes& begin) {
  std::vector<size_t> found;
  for (size_t i = begin.arguments; i < arguments_.size(); ++i)
    if (arguments_[i].address == address) found.push_back(i);
  // A loop within this one has them all.
  if (!found.empty()) return found;
  const auto add = [&](const Argument& argument) {
    found.push_back(arguments_.size());
    arguments_.push_back(argument);
  };
  for (size_t i = begin.reads; i < reads_.size(); ++i)
    if (reads_[i].address == address)
      add({.address = address, .is_in_code = true, .instruction = reads_[i].instruction});
  for (const auto& instruction : kernel_instructions_)
    if (address - instruction->first_address < instruction->n_inputs + instruction->n_outputs)
      add({.address = address});
  for (const Rows& rows : rows_) {
    const size_t k = address - rows.first_address;
    if (k >= rows.n_inputs + rows.n_outputs) continue;
    const bool is_output = k >= rows.n_inputs;
    rows.calls->for_each_argument(
        is_output, is_output ? k - rows.n_inputs : k, [&](const std::byte** at, int64_t offset) {
          const auto* const byte = reinterpret_cast<const std::byte*>(at);
          bool is_in_code = false;
          for (size_t i = begin.elements; i < elements_.size(); ++i) {
            const auto* const single = reinterpret_cast<const std::byte*>(elements_[i].single);
            if (std::less<>()(byte, single) || !std::less<>()(byte, single + sizeof(Single)))
              continue;
            is_in_code = true;
            add({.address = address,
                 .offset = offset,
                 .is_in_code = true,
                 .instruction = elements_[i].instruction,
                 .field_bytes = static_cast<size_t>(byte - single)});
          }
          if (is_in_code) return;
          add({.address = address, .offset = offset, .in_call = at});
          changed_.insert(rows.calls);
          for (const CallInstruction& call : call_instructions_)
            if (call.calls == rows.calls) moves_[call.instruction] = 1;
        });
  }
  return found;
}

std::vector<size_t> BoundLoop::add_copy(const ListSizes& begin, const ListSizes& end) {
  const size_t by = code_.size() - begin.code;
  for (size_t i = begin.code; i < end.code; ++i) {
    code_.push_back(LoopInstruction(code_[i]));
    moves_.push_back(moves_[i]);
  }
  for (size_t i = begin.elements; i < end.elements; ++i)
    elements_.push_back({elements_[i].instruction + by, elements_[i].single});
  for (size_t i = begin.call_instructions; i < end.call_instructions; ++i)
    call_instructions_.push_back(
        {call_instructions_[i].instruction + by, call_instructions_[i].calls});
  for (size_t i = begin.reads; i < end.reads; ++i)
    reads_.push_back({reads_[i].instruction + by, reads_[i].address});
  std::vector<size_t> copies;
  for (size_t i = begin.arguments; i < end.arguments; ++i) {
    copies.push_back(i);
    if (!arguments_[i].is_in_code) continue;
    copies.back() = arguments_.size();
    arguments_.push_back(Argument(arguments_[i]));
    arguments_.back().instruction += by;
  }
  for (size_t i = begin.movers; i < end.movers; ++i)
    movers_.push_back({movers_[i].instruction + by, copies[movers_[i].argument - begin.arguments]});
  return copies;
}

void BoundLoop::add_loop(const LoopSteps& steps, bool is_outermost) {
  const bool is_open = steps.trip_count == Loop::kOpen;
  const int64_t trip_count = is_open ? std::numeric_limits<int64_t>::max() : steps.trip_count;
  if (is_outermost)
    trip_count_ = trip_count;
  else
    add_instruction(LoopCommand::kEnterNested);
  const ListSizes begin = list_sizes();
  size_t leave = 0;  // of an open loop within the loop
  if (is_open) {
    add(steps.condition);
    leave = code_.size();
    add_read(is_outermost ? LoopCommand::kLeaveIfFalse : LoopCommand::kJumpIfFalse,
             steps.predicate);
  }
  add(steps.body);

  struct Moving {
    size_t argument;
    const std::vector<int64_t>* deltas;
  };
  std::vector<Moving> in_code, elsewhere;
  size_t copies = 1;
  for (const MovingAddress& m : steps.moving)
    for (size_t i : arguments_of(m.address, begin)) {
      (arguments_[i].is_in_code ? in_code : elsewhere).push_back({i, &m.deltas});
      if (arguments_[i].is_in_code)
        copies = std::lcm(copies, std::min(m.deltas.size(), kMostCopies + 1));
    }
  struct Rotating {
    size_t argument;
    RotatingAddress address;
  };
  std::vector<Rotating> rotating;
  for (const RotatingAddress& t : steps.rotating) {
    ranges_.push_back({t.first_other, t.period - 1});
    for (size_t i : arguments_of(t.address, begin)) {
      has_room_ = has_room_ && arguments_[i].is_in_code;
      rotating.push_back({i, t});
      copies = std::lcm(copies, std::min(t.period, kMostCopies + 1));
    }
  }
  const ListSizes end = list_sizes();
  if (copies > kMostCopies || copies * (end.code - begin.code) > kMostInstructions) copies = 1;
  // Slots that iterations take in turn have fixed addresses in a list of as many iterations as
  // there are slots.
  const auto is_in_turn = [&](const std::vector<int64_t>& deltas) {
    return copies % deltas.size() != 0;
  };
  if (!is_outermost) {
    for (const Moving& m : in_code) has_room_ = has_room_ && !is_in_turn(*m.deltas);
    for (const Moving& m : elsewhere) has_room_ = has_room_ && m.deltas->size() == 1;
    counts_.push_back(0);
  }
  for (const Rotating& t : rotating) has_room_ = has_room_ && copies % t.address.period == 0;
  std::vector<size_t> nexts;
  const auto add_next = [&](LoopCommand of_outermost, LoopCommand of_inner) {
    nexts.push_back(code_.size());
    LoopInstruction& made = add_instruction(is_outermost ? of_outermost : of_inner);
    if (is_outermost) return;
    made.count = &counts_.back();
    made.trip_count = trip_count;
  };
  int64_t* const count = is_outermost ? nullptr : &counts_.back();
  std::vector<std::vector<size_t>> copied;  // arguments, as add_copy() returns them
  for (size_t copy = 0; copy < copies; ++copy) {
    if (copy > 0) copied.push_back(add_copy(begin, end));
    for (const Moving& m : elsewhere) add_mover(*m.deltas, m.argument);
    if (copy + 1 < copies) add_next(LoopCommand::kNext, LoopCommand::kNextNested);
  }
  for (const Rotating& t : rotating)
    for (size_t copy = 1; copy < copies; ++copy)
      if (const size_t turn = copy % t.address.period; turn != 0)
        arguments_[copied[copy - 1][t.argument - begin.arguments]].address =
            t.address.first_other + turn - 1;
  struct Moved {
    size_t argument;
    int64_t bytes;
  };
  std::vector<Moved> moved;  // when a loop within the loop has run
  for (const Moving& m : in_code) {
    const int64_t by = moved_by(*m.deltas, copies);
    for (size_t copy = 0; copy < copies; ++copy) {
      const size_t i = copy == 0 ? m.argument : copied[copy - 1][m.argument - begin.arguments];
      arguments_[i].offset += moved_by(*m.deltas, copy);
      if (!is_in_turn(*m.deltas) && by == 0) continue;
      moves_[arguments_[i].instruction] |=
          static_cast<uint8_t>(1u << arguments_[i].field_bytes / sizeof(std::byte*));
      add_mover(is_in_turn(*m.deltas) ? *m.deltas : std::vector<int64_t>{by}, i);
      moved.push_back({i, by * (trip_count / static_cast<int64_t>(copies))});
    }
  }
  for (const Moving& m : elsewhere) moved.push_back({m.argument, (*m.deltas)[0] * trip_count});
  add_next(LoopCommand::kAgain, LoopCommand::kAgainNested);
  if (is_outermost) return;
  code_.back().count = count;
  code_.back().target = -static_cast<int32_t>(code_.size() - 1 - begin.code);
  nexts.pop_back();
  for (size_t next : nexts) code_[next].target = static_cast<int32_t>(code_.size() - next);
  if (is_open) code_[leave].target = static_cast<int32_t>(code_.size() - leave);
  // The next run of this loop begins where this one did.
  for (const Moved& m : moved) add_mover({-m.bytes}, m.argument);
}

void BoundLoop::add_mover(const std::vector<int64_t>& deltas, size_t argument) {
  movers_.push_back({code_.size(), argument});
  LoopInstruction& made =
      add_instruction(deltas.size() == 1 ? LoopCommand::kMove : LoopCommand::kMoveInTurn);
  made.address = nullptr;
  made.delta = deltas[0];
  if (deltas.size() == 1) return;
  deltas_.push_back(deltas);
  made.deltas = deltas_.back().data();
  made.n_deltas = static_cast<int64_t>(deltas.size());
}

const std::byte** BoundLoop::place_of(const Argument& argument, std::byte** addresses) {
  if (argument.is_in_code)
    return reinterpret_cast<const std::byte**>(
        reinterpret_cast<std::byte*>(&code_[argument.instruction].single) + argument.field_bytes);
  return argument.in_call ? argument.in_call
                          : const_cast<const std::byte**>(addresses + argument.address);
}

void BoundLoop::set_addresses(std::byte** addresses) {
  for (const Rows& rows : rows_) {
    std::byte** const at = addresses + rows.first_address;
    std::byte** const outputs = at + rows.n_inputs;
    rows.calls->set_addresses(at, outputs, rows.has_scratch ? outputs[rows.n_outputs] : nullptr);
  }
  for (const auto& instruction : kernel_instructions_)
    instruction->at = addresses + instruction->first_address;
  bool is_same = !last_addresses_.empty();
  size_t n = 0;
  for (const Range& range : ranges_) {
    last_addresses_.resize(std::max(last_addresses_.size(), n + range.n));
    for (size_t k = 0; k < range.n; ++k, ++n) {
      std::byte* const address = addresses[range.first + k];
      is_same = is_same && last_addresses_[n] == address;
      last_addresses_[n] = address;
    }
  }
  if (!is_same) {
    for (const Element& element : elements_) code_[element.instruction].single = *element.single;
    for (const Read& read : reads_) code_[read.instruction].index = addresses[read.address];
  }
  for (const Argument& argument : arguments_)
    *place_of(argument, addresses) = addresses[argument.address] + argument.offset;
  for (const Mover& mover : movers_)
    code_[mover.instruction].address = place_of(arguments_[mover.argument], addresses);
  for (int64_t& count : counts_) count = 0;
  if (!is_same) last_results_ = link_loop(code_, moves_);
  for (RowCalls* calls : changed_) calls->forget_addresses();
}

void BoundLoop::run(std::byte** addresses) {
  set_addresses(addresses);
  run_loop(code_.data(), trip_count_, last_results_);
}

}  // namespace stow::cpu
