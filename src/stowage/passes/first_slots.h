// The pass that leaves what a scan begins with where it is, in place of a copy in its stack.
// Not a change of the graph; the schedule alone tells that nothing writes there.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/ir/schedule.h"

namespace stow {

/// Makes the first slot of a stack the program's argument of which it is a copy, and drops the copy
/// (Buffer::first_slot), if nothing writes over either. A stack that keeps what every iteration
/// begins with has the scan's argument in its first slot. Of n layers n - 1 are then kept, as in a
/// program without the loop.
void share_first_slots(Schedule& schedule);

}  // namespace stow
