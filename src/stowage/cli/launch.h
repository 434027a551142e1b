// The launcher: starts a command as several processes on this host and supervises them.
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

/// The options `--processes N`, `--devices N` and `--log-ranks all`.
struct LaunchOptions {
  int32_t processes = 1;
  int32_t devices = 1;  ///< Devices of each process.
  bool log_all = false;        ///< True for --log-ranks all.
  std::string log_ranks;       ///< The text of --log-ranks, "all" or "first".
  bool has_processes = false;  ///< --processes was given.
};

/// Reads and removes --processes and --log-ranks from a command's arguments. Reads --devices, but
/// does not remove it. Errors: one line for a value that is not a number from 1 on, or too large.
Result<LaunchOptions> take_launch_options(std::vector<std::string>& arguments);

/// Adds these options to a command's parser and help. In a launched process, take_launch_options
/// has removed all of them but --devices.
void add_launch_options(CLI::App& app, LaunchOptions& options);

/// Runs a program with these arguments in options.processes processes. Returns the status of the
/// process that failed first, else 0. Only the first process prints; with log_all all print, and
/// their lines begin with "[PROCESS] ".
/// `program`: its path. Empty: this program; `arguments` are then a command and its arguments.
///
/// If a process ends with an error or by a signal, the launcher ends the other processes within two
/// seconds, and one line on standard error names the failed process and the collective in which the
/// others wait. SIGINT, SIGTERM and SIGHUP are passed on; a second signal ends all processes. If
/// the launcher is killed, the processes die.
Result<int> run_in_processes(const LaunchOptions& options, std::span<const std::string> arguments,
                             const std::string& program = {});

/// Called before an error is printed. Under mpirun, all processes except the first wait here for 3
/// to 6 seconds, longer with a larger number. If the first process has the same error, it prints it
/// meanwhile, and mpirun ends the waiting processes. Otherwise the process of the lowest number
/// that has the error prints it first.
void defer_to_first_process();

/// Runs a command that may run as several processes. Calls `run` if one process is asked for, or in
/// a process that the launcher or mpirun started; else starts the processes. Under mpirun all
/// processes except the first are silent, unless --log-ranks all is given.
/// Errors: those of take_launch_options; --processes under mpirun.
Result<int> launch(const std::string& name, std::vector<std::string> arguments,
                   Result<int> (*run)(std::span<const std::string>));

}  // namespace stow
