// Collectives between hosts, through Open MPI's point-to-point calls.
// Not MPI's own reductions: their order depends on sizes and transports.
#pragma once

#include <memory>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/runtime/comm/world.h"

namespace stow::comm {

/// True if the library was built with MPI.
bool has_mpi();

/// Joins the processes that mpirun has started.
/// Errors: the library was built without MPI; MPI has no threads, and there are several devices.
Result<std::unique_ptr<World>> join_mpi(const Launch& launch, const WorldOptions& options);

}  // namespace stow::comm
