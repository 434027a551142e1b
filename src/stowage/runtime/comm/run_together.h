// run_together: runs a function for every device of this process, on the device's own thread.
// Not the connection to other processes; communicators have that.
#pragma once

#include <functional>
#include <span>

#include "stowage/base/inside.h"
#include "stowage/runtime/comm/communicator.h"
#include "stowage/runtime/device.h"

namespace stow::comm {

/// A device that runs together with others, and its communicator.
struct Participant {
  Device* device = nullptr;
  Communicator* communicator = nullptr;
};

/// Calls `work(i)` for each participant i, all at the same time, and returns when all have ended.
/// If one throws, the collectives of all ranks end with an error that names that participant ("rank
/// 1 of 4: …").
/// Errors: rethrows the first exception, in the order of participants, that is not a
/// CommunicationError, because a CommunicationError only reports that another participant failed;
/// else the first CommunicationError.
void run_together(std::span<const Participant> participants,
                  const std::function<void(size_t)>& work);

}  // namespace stow::comm
