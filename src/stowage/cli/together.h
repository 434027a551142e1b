// The processes of a training run over a mesh: which devices each has, and what all must have alike.
// Not the start of processes; that is the launcher's (cli/launch.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/runtime/comm/world.h"
#include "stowage/train/config.h"

namespace stow {

/// The share of this process in a run.
struct Together {
  std::unique_ptr<comm::World> world;  ///< All processes; null where there is one.
  int64_t devices = 1;                 ///< The number that this process has.
  int64_t devices_on_host = 1;         ///< The number that this machine's processes have.
  int threads = 1;                     ///< The number that each device has.
  comm::Window window;                 ///< The memory through which devices exchange.

  bool is_first() const { return !world || world->process() == 0; }  ///< True if it prints and writes.
};

/// Threads of each of so many devices of this machine.
int threads_each(int64_t devices_on_host);

/// Adds --devices to the arguments of `train` that have --processes without it: as many as make up the mesh.
/// Leaves arguments that have faults to their parser.
void add_devices_of_mesh(std::vector<std::string>& arguments);

/// Joins the processes that were started for the mesh of the configuration. `devices`: of each process, as
/// --devices says; 0: as many as make up the mesh.
/// Errors: devices times processes are not the mesh; those of World::join.
Result<Together> join_processes(const TrainConfig& config, int32_t devices);

/// The window of a run that is planned, in so many processes of one host with so many devices each; 0: as
/// join_processes has it.
/// Errors: devices times processes are not the mesh.
Result<comm::Window> planned_window(const TrainConfig& config, int32_t processes, int32_t devices);

/// Checks that all processes have the same facts. All call it at the same place.
/// Errors: as comm::check_agreement.
Result<void> check_agreement(const Together& together, std::span<const comm::Fact> facts);

/// Returns once all processes have called it. All call it at the same place.
/// Errors: as the collectives.
Result<void> wait_for_all(const Together& together, std::string_view label);

/// The least of the values that the processes give. All call it at the same place.
int64_t least_of_all(const Together& together, int64_t value);

}  // namespace stow
