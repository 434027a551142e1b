// NumberedMoves: a schedule whose moves are numbered, and what all trials of overlapping it share.
// Not a trial; overlapper.h makes one.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/schedule_walk.h"
#include "stowage/passes/transfer_items.h"

namespace stow {

/// True if a kernel moves bytes between memories or devices and is not cut in two yet.
inline bool is_move(const Kernel& kernel, const std::vector<Buffer>& buffers) {
  return kernel.phase == MovePhase::kWhole && stream_of(kernel, buffers) != StreamKind::kCompute;
}

/// Gives an instruction its own loop or branch, cut off from the schedule that it was copied from,
/// and visits the instructions of kernels in it.
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

/// Trials copy what they change, so the kernels here stay as they are and where they are.
struct NumberedMoves {
  struct Described {
    StreamKind stream = StreamKind::kCompute;
    Lane lane = 0;
    Accesses::Shared accesses;
  };

  explicit NumberedMoves(const Schedule& whole);

  // True if a write begins the life of more than the bytes that it writes: nothing may be written
  // there before. A buffer that a loop fills bit by bit begins with the first bit, see
  // begin_no_bits.
  static bool begins_all(const Schedule& schedule, const View& view) {
    const Buffer& b = schedule.buffers[view.buffer.index()];
    return view.begins && view.terms.empty() && b.slots == 1 && b.parts.size() == 1;
  }

  Schedule schedule;
  std::vector<Instruction> starts, dones;  // starts and dones of the moves, by number
  std::unordered_map<const Kernel*, Described> described;
  std::vector<const Described*> in_order;  // one a kernel, as for_each_kernel() meets them
  std::vector<int> n_accesses;             // by buffer, before any move is split
  std::vector<bool> is_result;             // by buffer

 private:
  void count_accesses();
  void number(Instruction& instruction);
  const Described& describe(const Kernel& kernel);
};

}  // namespace stow
