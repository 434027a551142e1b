// Collectives between hosts, through Open MPI's point-to-point calls.
// MPI's own reductions are used where ReduceOrder::kNative asks for them.
#pragma once

#include <memory>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/runtime/comm/world.h"

namespace stow::comm {

/// True if the library was built with MPI.
bool has_mpi();

/// Bytes of the buffers of one rank among so many: two halves that are sent and one that is received, each
/// of a chunk and a header a rank.
int64_t mpi_window_bytes(int64_t n_ranks);

/// Joins the processes that mpirun has started.
/// Errors: the library was built without MPI; MPI has no threads, and there are several devices.
Result<std::unique_ptr<World>> join_mpi(const Launch& launch, const WorldOptions& options);

}  // namespace stow::comm
