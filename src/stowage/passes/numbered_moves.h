// NumberedMoves: a schedule with numbered moves, and the facts that all trials of overlap share.
// Not a trial; overlapper.h makes one.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/schedule_walk.h"
#include "stowage/passes/transfer_items.h"

namespace stow {

/// True if a kernel moves bytes between memories or devices and is not split into start and done.
inline bool is_move(const Kernel& kernel, const std::vector<Buffer>& buffers) {
  return kernel.phase == MovePhase::kWhole && stream_of(kernel, buffers) != StreamKind::kCompute;
}

/// Gives an instruction its own copy of its loop or branch, no longer shared with the schedule that
/// it was copied from, and calls visit_kernel for each instruction in it that is a kernel.
template <typename VisitKernel>
void own_bodies(Instruction& instruction, const VisitKernel& visit_kernel) {
  const auto all = [&](Instructions& list) {
    for (Instruction& i : list) own_bodies(i, visit_kernel);
  };
  if (instruction.kernel()) {
    visit_kernel(instruction);
  } else if (instruction.loop()) {
    auto own = std::make_shared<Loop>(*instruction.loop());
    all(own->body);
    all(own->condition);
    instruction.body = std::move(own);
  } else {
    auto own = std::make_shared<Branch>(branch_of(instruction));
    for (Instructions& alternative : own->alternatives) all(alternative);
    instruction.body = std::move(own);
  }
}

/// Trials copy what they change, so the kernels here neither change nor move.
struct NumberedMoves {
  /// Facts of a kernel that every trial needs.
  struct Described {
    StreamKind stream = StreamKind::kCompute;
    Lane lane = 0;
    Accesses::Shared accesses;
  };

  explicit NumberedMoves(const Schedule& whole);

  // True if a write begins the lifetime of a whole buffer, so nothing may be written there before.
  // A buffer that a loop fills part by part is different, see Overlapper::clear_partial_begins.
  static bool begins_all(const Schedule& schedule, const View& view) {
    const Buffer& b = schedule.buffers[view.buffer.index()];
    return view.begins_lifetime && view.terms.empty() && b.slots == 1 && b.parts.size() == 1;
  }

  Schedule schedule;
  std::vector<Instruction> starts, dones;  // by number of the move (Kernel::transfer)
  std::unordered_map<const Kernel*, Described> described;
  std::vector<const Described*> in_order;  // by kernel, in the order of for_each_kernel()
  std::vector<int> n_accesses;             // by buffer, before any move is split
  std::vector<bool> is_result;             // by buffer: true if an output of the program lies in it

 private:
  void count_accesses();
  void number(Instruction& instruction);
  const Described& describe(const Kernel& kernel);
};

}  // namespace stow
