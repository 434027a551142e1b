// Starts the ranks of a communicator as threads or processes, and collects their results.
// Not the launcher of the program (cli/launch.h).
#pragma once

#include <functional>
#include <string>

#include "stowage/runtime/comm/communicator.h"

namespace stow {

/// The function that each rank runs. It returns what is wrong, or ""; the message of an exception
/// counts as its result.
using RankBody = std::function<std::string(comm::Communicator&)>;

/// Runs the body on `n_ranks` threads. Returns the texts of all ranks, one line each, ordered by
/// rank.
std::string run_threads(int32_t n_ranks, const RankBody& body, const comm::ThreadOptions& = {});

/// Runs the body in `n_processes` forked processes, each with `devices` ranks on threads. Returns
/// like run_threads().
std::string run_processes(int32_t n_processes, int32_t devices, const RankBody& body,
                          double timeout_s = 60);

}  // namespace stow
