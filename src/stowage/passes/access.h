// What the instructions of a schedule touch, and whether two of them may touch the same bytes.
// Not lifetimes; those are of a whole timeline.
#pragma once

#include <vector>

#include "stowage/ir/schedule.h"

namespace stow {

/// Bytes that an instruction touches: [low, high) of a buffer, and the loops that shift them.
struct Access {
  BufferId buffer;
  bool write = false;
  bool whole = false;  ///< Of a nested loop: any of the buffer.
  int64_t low = 0, high = 0;
  std::vector<LoopTerm> terms;
};
Access access_of(const View& view, bool write);

/// Whether two accesses of a list in `loop` may meet, `a` being made `shift` iterations later than
/// `b`. An invalid loop is none; the shift is 0 then.
bool may_meet(const Access& a, const Access& b, int shift, LoopId loop);

using Instructions = std::vector<Instruction>;

inline Branch& branch_of(Instruction& instruction) {
  return *std::get<std::shared_ptr<Branch>>(instruction.body);
}

/// visit(View&, bool write) for every window of an instruction or a list, nested ones too.
template <typename Visit>
void for_each_view(Instructions& list, Visit&& visit);
template <typename Visit>
void for_each_view(Instruction& instruction, Visit&& visit) {
  if (Kernel* kernel = instruction.kernel()) {
    for (View& view : kernel->inputs) visit(view, false);
    for (View& view : kernel->outputs) visit(view, true);
  } else if (Loop* loop = instruction.loop()) {
    for_each_view(loop->body, visit);
    for_each_view(loop->condition, visit);
    if (loop->trip_count == Loop::kOpen) visit(loop->predicate, false);
    for (View& view : loop->carries) visit(view, false);
  } else {
    Branch& branch = branch_of(instruction);
    visit(branch.index, false);
    for (Instructions& alternative : branch.alternatives) for_each_view(alternative, visit);
    for (View& view : branch.results) visit(view, true);
  }
}
template <typename Visit>
void for_each_view(Instructions& list, Visit&& visit) {
  for (Instruction& instruction : list) for_each_view(instruction, visit);
}

}  // namespace stow
