// run_together: one piece of work on every device of this process, each on the device's own thread.
// Not the programs, nor who the other processes are; a communicator reaches those.
#pragma once

#include <functional>
#include <span>

#include "stowage/base/inside.h"
#include "stowage/runtime/comm/communicator.h"
#include "stowage/runtime/device.h"

namespace stow::comm {

/// A device that runs with others, and its end of their collectives.
struct Participant {
  Device* device = nullptr;
  Communicator* communicator = nullptr;
};

/// Calls `work(i)` for each participant i, all at the same time, and returns when all have ended. If one
/// throws, the collectives of all ranks end with an error that names it ("rank 1 of 4: …").
/// Errors: what the first of them threw that is not a CommunicationError, as the others only say that it is
/// gone; else the first CommunicationError.
void run_together(std::span<const Participant> participants, const std::function<void(size_t)>& work);

}  // namespace stow::comm
