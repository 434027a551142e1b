// The launcher of processes: starts a command several times on this host, and sees all of them end.
// Not the collectives between them (runtime/comm/world.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"

namespace CLI {
class App;
}

namespace stow {

/// `--processes N`, `--devices N`, `--log-ranks all`.
struct LaunchOptions {
  int32_t processes = 1;
  int32_t devices = 1;  ///< Devices of each process.
  bool log_all = false;
  std::string log_ranks;       ///< "all" or "first", as it was given.
  bool has_processes = false;  ///< --processes was given.
};

/// Takes --processes and --log-ranks out of a command's arguments; reads --devices and leaves it there.
/// Errors: one line about a value that is no number from 1 on, or too large.
Result<LaunchOptions> take_launch_options(std::vector<std::string>& arguments);

/// The same options for a command's parser and help. Of a command that was launched only the number of
/// devices is left in the arguments.
void add_launch_options(CLI::App& app, LaunchOptions& options);

/// Runs a program with these arguments in as many processes, and returns the status of the one that failed
/// first, or 0. The first process prints; others are silent, or all lines begin with "[PROCESS] ".
/// `program`: the path of it; empty is this program, whose arguments are a command and its own.
///
/// When a process ends with an error or by a signal, the others are ended within two seconds, and one line
/// on standard error names the process, and the collective that the others wait in. SIGINT, SIGTERM and
/// SIGHUP are handed on; a second one ends all. When the launcher itself is killed, the processes die.
Result<int> run_in_processes(const LaunchOptions& options, std::span<const std::string> arguments,
                             const std::string& program = {});

/// Called before an error is printed. Under mpirun all processes but the first then wait for more than a
/// second: a first process that finds the same error has printed it by then, and mpirun has ended the others.
/// Else the one of the lowest number that has the error prints it.
void let_first_process_speak();

/// Runs `run` at once where the command was started by itself for one process, by the launcher or by
/// mpirun, where all but the first are silent; else starts the processes.
/// Errors: those of take_launch_options; --processes under mpirun.
Result<int> launch(const std::string& name, std::vector<std::string> arguments,
                   Result<int> (*run)(std::span<const std::string>));

}  // namespace stow
