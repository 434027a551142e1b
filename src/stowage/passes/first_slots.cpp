#include "stowage/passes/first_slots.h"

#include <algorithm>
#include <map>
#include <set>

#include "stowage/base/error.h"
#include "stowage/passes/access.h"
#include "stowage/passes/rows.h"
#include "stowage/passes/view.h"

namespace stow {
namespace {

class Sharer {
 public:
  explicit Sharer(Schedule& schedule) : schedule_(schedule) {}

  void run() {
    find_writes(schedule_.instructions);
    for (const View& view : schedule_.outputs) written_.insert(view.buffer);
    std::erase_if(schedule_.instructions, [&](const Instruction& instruction) {
      const Kernel* kernel = instruction.kernel();
      if (!kernel || !is_copy_of_argument(*kernel)) return false;
      const BufferId stack = kernel->outputs[0].buffer, argument = kernel->inputs[0].buffer;
      if (first_slot_writes_[stack] != 1 || written_.contains(stack) || written_.contains(argument))
        return false;
      buffer(stack).first_slot = argument;
      return true;
    });
  }

 private:
  Buffer& buffer(BufferId id) { return schedule_.buffers[id.index()]; }

  // True for a copy of a whole argument into the first slot of a stack with independent slots.
  bool is_copy_of_argument(const Kernel& kernel) {
    if (kernel.kind != KernelKind::kRows || kernel.inputs.size() != 1 || kernel.outputs.size() != 1)
      return false;
    const View &from = kernel.inputs[0], &to = kernel.outputs[0];
    const Buffer &argument = buffer(from.buffer), &stack = buffer(to.buffer);
    const auto is_start = [](const View& view) {
      return view.offset_bytes == 0 && view.terms.empty() && is_contiguous(view);
    };
    return argument.role == BufferRole::kInput && stack.role == BufferRole::kTemporary &&
           stack.independent_slots && !stack.first_slot.valid() && stack.slots > 1 &&
           stack.loop_dims.empty() && stack.parts.size() == 1 &&
           stack.kind == argument.kind && stack.slot_bytes == argument.bytes &&
           from.dtype == to.dtype && from.dims == to.dims && is_start(from) && is_start(to) &&
           from.elems() * dtype_bytes(from.dtype) == argument.bytes &&
           *kernel.program == copy_program(from, to);
  }

  // Returns the lowest slot that a window which steps with loops may reach.
  int64_t lowest_slot(const View& view) {
    int64_t low = view.offset_bytes;
    for (const LoopTerm& term : view.terms) {
      const auto trips = trip_counts_.find(term.loop);
      STOW_CHECK(trips != trip_counts_.end(), "a window steps with a loop around nothing");
      const int64_t last = term.start + term.step * std::max<int64_t>(trips->second - 1, 0);
      const bool wraps = term.modulo > 0 || trips->second == Loop::kOpen;
      low += (wraps ? 0 : std::min(term.start, last)) * term.stride_bytes;
    }
    return low / buffer(view.buffer).slot_bytes;
  }

  void find_writes(Instructions& list) {
    for (Instruction& instruction : list) {
      if (const Kernel* kernel = instruction.kernel()) {
        for (const View& view : kernel->outputs) note(view, buffer(view.buffer).independent_slots);
      } else if (Loop* loop = instruction.loop()) {
        trip_counts_[loop->id] = loop->trip_count;
        find_writes(loop->body);
        find_writes(loop->condition);
        for (const View& view : loop->carries) note(view, false);
      } else {
        Branch& branch = branch_of(instruction);
        for (Instructions& alternative : branch.alternatives) find_writes(alternative);
        for (const View& view : branch.results) note(view, false);
      }
    }
  }
  void note(const View& view, bool by_slot) {
    if (!by_slot)
      written_.insert(view.buffer);
    else if (lowest_slot(view) == 0)
      ++first_slot_writes_[view.buffer];
  }

  Schedule& schedule_;
  std::map<LoopId, int64_t> trip_counts_;
  std::set<BufferId> written_;                  // anywhere
  std::map<BufferId, int> first_slot_writes_;   // of stacks, that may reach the first slot
};

}  // namespace

void share_first_slots(Schedule& schedule) {
  Sharer(schedule).run();
}

}  // namespace stow
