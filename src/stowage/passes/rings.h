// Staging buffers of a loop that become rings, so that iterations do not wait for each other's.
// Not the choice of which, nor of how many slots; that is transfers.h.
#pragma once

#include <span>

#include "stowage/base/inside.h"
#include "stowage/ir/schedule.h"

namespace stow {

/// True if each iteration of a loop has a place of its own for the buffer.
bool has_slot_per_iteration(const Buffer& buffer, LoopId loop);

/// A buffer that only the instructions of `list`, the loop's body, touch becomes several that take
/// turns by iteration and lie apart; one that is told apart, as many as there are iterations.
void make_ring(Schedule& schedule, std::span<Instruction* const> list, const Loop& loop,
               BufferId id, int64_t slots);

}  // namespace stow
