#include "stowage/passes/numbered_moves.h"

#include <utility>

namespace stow {

NumberedMoves::NumberedMoves(const Schedule& whole) : schedule(whole) {
  for (Instruction& instruction : schedule.instructions)
    own_bodies(instruction, [&](Instruction& i) { number(i); });
  for_each_kernel(std::as_const(schedule.instructions),
                  [&](const Kernel& k) { in_order.push_back(&describe(k)); });
  for (const std::vector<Instruction>* halves : {&starts, &dones})
    for (const Instruction& i : *halves) describe(*i.kernel());
  count_accesses();
}

void NumberedMoves::count_accesses() {
  n_accesses.assign(schedule.buffers.size(), 0);
  for_each_view(std::as_const(schedule.instructions),
                [&](const View& view, bool) { ++n_accesses[view.buffer.index()]; });
  is_result.assign(schedule.buffers.size(), false);
  for (const View& view : schedule.outputs) {
    ++n_accesses[view.buffer.index()];
    is_result[view.buffer.index()] = true;
  }
}

void NumberedMoves::number(Instruction& instruction) {
  if (!is_move(*instruction.kernel(), schedule.buffers)) return;
  instruction.edit_kernel()->transfer = static_cast<int>(starts.size());
  Instruction start = instruction, done = instruction;
  start.edit_kernel()->phase = MovePhase::kStart;
  Kernel* const awaited = done.edit_kernel();
  awaited->phase = MovePhase::kDone;
  awaited->outputs[0].begins_lifetime = false;
  starts.push_back(std::move(start));
  dones.push_back(std::move(done));
}

const NumberedMoves::Described& NumberedMoves::describe(const Kernel& kernel) {
  std::vector<Access> accesses;
  const auto add = [&](const View& view, bool write) {
    if (begins_all(schedule, view))
      accesses.push_back(
          {view.buffer, write, false, 0, schedule.buffers[view.buffer.index()].bytes, {}});
    else
      accesses.push_back(access_of(view, write));
  };
  for (const View& view : kernel.inputs) add(view, false);
  for (const View& view : kernel.outputs) add(view, true);
  const StreamKind stream = stream_of(kernel, schedule.buffers);
  return described[&kernel] = {stream, lane_of(kernel, stream),
                               std::make_shared<const std::vector<Access>>(std::move(accesses))};
}

}  // namespace stow
