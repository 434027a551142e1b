// The pass that makes a program's argument the first slot of a stack, in place of its copy there.
// Not a pass over the graph: only a schedule shows that nothing overwrites either.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/ir/schedule.h"

namespace stow {

/// If the first slot of a stack is a copy of a program's argument and nothing overwrites either,
/// makes the argument the first slot (Buffer::first_slot) and drops the copy. A stack of the
/// carries that enter the iterations begins with such a copy. For n iterations, n - 1 slots then
/// remain, as in a program without the loop.
void share_first_slots(Schedule& schedule);

}  // namespace stow
