// Collectives between hosts through Open MPI: its point-to-point calls, and its reductions if
// ReduceOrder::kNative is set. Not the collectives of one host; those are in window.h.
#pragma once

#include <memory>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/runtime/comm/world.h"

namespace stow::comm {

/// True if the library was built with MPI.
bool has_mpi();

/// Returns the bytes of one rank's buffers in a world of `n_ranks`: two send buffers and one
/// receive buffer, each of kHalfWindowBytes plus a header for each rank.
int64_t mpi_window_bytes(int64_t n_ranks);

/// Joins the processes that mpirun has started.
/// Errors: the library was built without MPI; a process has several devices, and MPI lacks thread
/// support.
Result<std::unique_ptr<World>> join_mpi(const Launch& launch, const WorldOptions& options);

}  // namespace stow::comm
