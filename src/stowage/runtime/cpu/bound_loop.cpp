#include "stowage/runtime/cpu/bound_loop.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "stowage/runtime/cpu/bound_kernel.h"

namespace stow::cpu {

BoundLoop::BoundLoop(const LoopSteps& steps)
    : trip_count_(steps.trip_count == Loop::kOpen ? std::numeric_limits<int64_t>::max()
                                                  : steps.trip_count) {
  if (steps.trip_count == Loop::kOpen) {
    add(steps.condition);
    add_read(LoopCommand::kLeaveIfFalse, steps.predicate);
  }
  add(steps.body);
  add_iterations(steps.moving);
}

LoopInstruction& BoundLoop::add_instruction(LoopCommand command) {
  moves_.push_back(0);
  LoopInstruction& made = code_.emplace_back();
  made.command = command;
  return made;
}

void BoundLoop::add(const std::vector<LoopStep>& steps) {
  for (const LoopStep& step : steps) step.kernel ? add_kernel(step) : add_branch(step);
}

void BoundLoop::add_kernel(const LoopStep& step) {
  const size_t n = step.n_inputs + step.n_outputs + (step.has_scratch ? 1 : 0);
  ranges_.push_back({step.first_address, n});
  RowCalls* const calls = static_cast<const BoundKernel*>(step.kernel)->only_calls();
  if (!calls) {
    whole_.push_back(std::make_unique<Whole>(
        Whole{step.kernel, step.first_address, step.n_inputs, step.n_outputs, step.has_scratch}));
    LoopInstruction& made = add_instruction(LoopCommand::kRunKernel);
    made.context = whole_.back().get();
    made.run = [](const void* context) {
      const Whole& whole = *static_cast<const Whole*>(context);
      std::byte** const outputs = whole.at + whole.n_inputs;
      whole.kernel->run({whole.at, whole.n_inputs}, {outputs, whole.n_outputs},
                        whole.has_scratch ? outputs[whole.n_outputs] : nullptr);
    };
    return;
  }
  rows_.push_back({calls, step.first_address, step.n_inputs, step.n_outputs, step.has_scratch,
                   code_.size(), calls->calls().size()});
  for (const RowCalls::Call& call : calls->calls()) {
    if (call.kind == RowCalls::Call::kSingle) {
      elements_.push_back({code_.size(), static_cast<const Single*>(call.arguments)});
      add_instruction(LoopCommand::kSingle).op = call.single;
    } else if (call.kind == RowCalls::Call::kMap) {
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

template <class F>
void BoundLoop::for_each_argument(size_t address, F f) {
  for (const Read& read : reads_)
    if (read.address == address)
      f(Argument{.address = address, .is_in_code = true, .instruction = read.instruction});
  for (const auto& whole : whole_)
    if (address - whole->first_address < whole->n_inputs + whole->n_outputs)
      f(Argument{.address = address});
  for (const Rows& rows : rows_) {
    const size_t k = address - rows.first_address;
    if (k >= rows.n_inputs + rows.n_outputs) continue;
    const bool is_output = k >= rows.n_inputs;
    rows.calls->for_each_argument(
        is_output, is_output ? k - rows.n_inputs : k, [&](const std::byte** at, int64_t offset) {
          const auto* const byte = reinterpret_cast<const std::byte*>(at);
          for (size_t i = 0; i < rows.n_instructions; ++i) {
            const Single* const single = rows.calls->single(i);
            const auto* const begin = reinterpret_cast<const std::byte*>(single);
            if (single && !std::less<>()(byte, begin) &&
                std::less<>()(byte, begin + sizeof(Single)))
              return f(Argument{.address = address,
                                .offset = offset,
                                .is_in_code = true,
                                .instruction = rows.first_instruction + i,
                                .field_bytes = static_cast<size_t>(byte - begin)});
          }
          f(Argument{.address = address, .offset = offset, .in_call = at});
          changed_.insert(rows.calls);
          for (size_t i = 0; i < rows.n_instructions; ++i)
            if (!rows.calls->single(i)) moves_[rows.first_instruction + i] = 1;
        });
  }
}

// Slots that iterations take in turn have fixed addresses in a list of as many iterations as there
// are slots.
void BoundLoop::add_iterations(const std::vector<MovingAddress>& moving) {
  constexpr size_t kMostCopies = 8, kMostInstructions = 256;
  struct Moving {
    Argument argument;
    const std::vector<int64_t>* deltas;
  };
  std::vector<Moving> in_code, elsewhere;
  size_t copies = 1;
  for (const MovingAddress& m : moving)
    for_each_argument(m.address, [&](const Argument& argument) {
      (argument.is_in_code ? in_code : elsewhere).push_back({argument, &m.deltas});
      if (argument.is_in_code)
        copies = std::lcm(copies, std::min(m.deltas.size(), kMostCopies + 1));
    });
  const size_t n = code_.size(), n_elements = elements_.size(), n_reads = reads_.size();
  if (copies > kMostCopies || copies * n > kMostInstructions) copies = 1;
  std::vector<size_t> first = {0};
  for (size_t copy = 0;; ++copy) {
    for (const Moving& m : elsewhere) add_mover(*m.deltas, m.argument);
    if (copy + 1 == copies) break;
    add_instruction(LoopCommand::kNext);
    const size_t by = code_.size();
    first.push_back(by);
    for (size_t i = 0; i < n; ++i) {
      code_.push_back(LoopInstruction(code_[i]));
      moves_.push_back(moves_[i]);
    }
    for (size_t i = 0; i < n_elements; ++i)
      elements_.push_back({elements_[i].instruction + by, elements_[i].single});
    for (size_t i = 0; i < n_reads; ++i)
      reads_.push_back({reads_[i].instruction + by, reads_[i].address});
  }
  for (const Moving& m : in_code) {
    const std::vector<int64_t>& deltas = *m.deltas;
    const bool is_in_turn = copies % deltas.size() != 0;
    const auto sum_to = [&](size_t iteration) {
      int64_t sum = 0;
      for (size_t i = 1; i <= iteration; ++i) sum += deltas[i % deltas.size()];
      return sum;
    };
    const int64_t whole = sum_to(copies);
    for (size_t copy = 0; copy < copies; ++copy) {
      Argument argument = m.argument;
      argument.offset += sum_to(copy);
      argument.instruction += first[copy];
      if (!is_in_turn && whole == 0) {
        arguments_.push_back(argument);
        continue;
      }
      moves_[argument.instruction] |=
          static_cast<uint8_t>(1u << argument.field_bytes / sizeof(std::byte*));
      add_mover(is_in_turn ? deltas : std::vector<int64_t>{whole}, argument);
    }
  }
  add_instruction(LoopCommand::kAgain);
}

void BoundLoop::add_mover(const std::vector<int64_t>& deltas, Argument argument) {
  argument.mover = code_.size();
  arguments_.push_back(argument);
  LoopInstruction& made =
      add_instruction(deltas.size() == 1 ? LoopCommand::kMove : LoopCommand::kMoveInTurn);
  made.address = nullptr;
  made.delta = deltas[0];
  if (deltas.size() == 1) return;
  deltas_.push_back(deltas);
  made.deltas = deltas_.back().data();
  made.n_deltas = static_cast<int64_t>(deltas.size());
}

void BoundLoop::set_addresses(std::byte** addresses) {
  for (const Rows& rows : rows_) {
    std::byte** const at = addresses + rows.first_address;
    std::byte** const outputs = at + rows.n_inputs;
    rows.calls->set_addresses(at, outputs, rows.has_scratch ? outputs[rows.n_outputs] : nullptr);
  }
  for (const auto& whole : whole_) whole->at = addresses + whole->first_address;
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
  for (const Argument& argument : arguments_) {
    const std::byte** at = argument.in_call;
    if (argument.is_in_code)
      at = reinterpret_cast<const std::byte**>(
          reinterpret_cast<std::byte*>(&code_[argument.instruction].single) + argument.field_bytes);
    else if (!at)
      at = const_cast<const std::byte**>(addresses + argument.address);
    *at = addresses[argument.address] + argument.offset;
    if (argument.mover != kNone) code_[argument.mover].address = at;
  }
  if (!is_same) last_results_ = link_loop(code_, moves_);
  for (RowCalls* calls : changed_) calls->forget_addresses();
}

void BoundLoop::run(std::byte** addresses) {
  set_addresses(addresses);
  run_loop(code_.data(), trip_count_, last_results_);
}

}  // namespace stow::cpu
