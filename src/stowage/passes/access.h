// The bytes that instructions of a schedule touch, and the test if two accesses may overlap.
// Not lifetimes, which plan/ computes for a whole timeline.
#pragma once

#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/schedule_walk.h"

namespace stow {

/// One access of an instruction: bytes [low, high) of a buffer, moved by loop terms.
struct Access {
  BufferId buffer;
  bool write = false;
  bool whole = false;  ///< True if a nested loop may touch any byte of the buffer.
  int64_t low = 0, high = 0;
  std::vector<LoopTerm> terms;
};
/// Returns the access of a window.
Access access_of(const View& view, bool write);

/// Replaces a view's terms of `loop` by their offset in one iteration.
void fix_iteration(View& view, LoopId loop, int64_t iteration);

/// True if two accesses in the body of `loop` may touch the same bytes, if `a` runs `shift`
/// iterations later than `b`. Outside any loop, `loop` is invalid and `shift` is 0.
bool may_alias(const Access& a, const Access& b, int shift, LoopId loop);

using Instructions = std::vector<Instruction>;

}  // namespace stow
