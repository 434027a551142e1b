// Turns staging buffers of a loop into rings, so that iterations need not wait for each other.
// Not the choice of buffers and of numbers of slots; transfers.h makes it.
#pragma once

#include <span>

#include "stowage/base/inside.h"
#include "stowage/ir/schedule.h"

namespace stow {

/// True if each iteration of a loop has a place of its own for the buffer.
bool has_slot_per_iteration(const Buffer& buffer, LoopId loop);

/// Makes a buffer that only `list`, the body of the loop, touches a ring of `slots` slots that
/// iterations use in turn; each slot may lie anywhere. If the buffer has a place for each iteration
/// (Buffer::loop_dims), it gets a slot for each iteration instead.
void make_ring(Schedule& schedule, std::span<Instruction* const> list, const Loop& loop,
               BufferId id, int64_t slots);

}  // namespace stow
