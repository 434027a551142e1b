// The windows that the instructions of a schedule touch, and tests for two that share bytes.
// Not lifetimes; those are of a whole timeline.
#pragma once

#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/schedule_walk.h"

namespace stow {

/// Bytes that an instruction touches: [low, high) of a buffer, and the loops that shift them.
struct Access {
  BufferId buffer;
  bool write = false;
  bool whole = false;  ///< True if a nested loop may touch any bytes of the buffer.
  int64_t low = 0, high = 0;
  std::vector<LoopTerm> terms;
};
Access access_of(const View& view, bool write);

/// The window that a view is in one iteration of a loop.
void fix_iteration(View& view, LoopId loop, int64_t iteration);

/// True if two accesses of a list in `loop` may touch the same bytes, `a` being made `shift`
/// iterations later than `b`. An invalid `loop` stands for no loop; the shift is 0 then.
bool may_meet(const Access& a, const Access& b, int shift, LoopId loop);

using Instructions = std::vector<Instruction>;

}  // namespace stow
