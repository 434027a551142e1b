// The pass that leaves what a scan begins with where it is, in place of a copy in its stack.
// Not a change of the graph; the schedule alone tells that nothing writes there.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/ir/schedule.h"

namespace stow {

/// A stack that keeps what every iteration begins with has the scan's argument in its first slot.
/// Where that is a copy of one of the program's arguments, and nothing writes over either, the slot
/// is the argument (Buffer::first_slot) and the copy goes: of n layers n - 1 are kept, as a program
/// without the loop would keep them.
void share_first_slots(Schedule& schedule);

}  // namespace stow
