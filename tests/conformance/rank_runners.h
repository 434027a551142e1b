// Starts the ranks of a communicator as threads, or as processes with threads, and collects what they say.
// Not the launcher of the program (cli/launch.h).
#pragma once

#include <functional>
#include <string>

#include "stowage/runtime/comm/communicator.h"

namespace stow {

/// What a rank does; it returns what is wrong, or nothing. An exception's message counts as well.
using RankBody = std::function<std::string(comm::Communicator&)>;

/// Runs the body on as many threads. Returns each rank's text, by rank, one a line.
std::string run_threads(int32_t n_ranks, const RankBody& body, const comm::ThreadOptions& = {});

/// Runs the body in that many forked processes, each with so many ranks on threads.
std::string run_processes(int32_t n_processes, int32_t devices, const RankBody& body,
                          double timeout_s = 60);

}  // namespace stow
