// The processes of a training run over a mesh: their devices, and checks that their inputs agree.
// Not the start of processes; that is the launcher's task (cli/launch.h).
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

/// This process's view of the processes of a run.
struct ProcessGroup {
  std::unique_ptr<comm::World> world;  ///< The group of all processes; null for a single process.
  int64_t devices = 1;                 ///< Number of devices of this process.
  int64_t devices_on_host = 1;         ///< Number of devices of all processes on this machine.
  int threads = 1;                     ///< Number of threads of each device.
  comm::Window window;                 ///< The memory through which devices exchange data.

  /// True if this process prints and writes files.
  bool is_first() const { return !world || world->process() == 0; }
};

/// Returns the number of threads of each device if this machine has that many devices.
int threads_per_device(int64_t devices_on_host);

/// If the arguments of `train` have --processes but not --devices, appends the --devices that make
/// up the mesh. Does nothing for invalid arguments, which their parser reports.
void add_devices_of_mesh(std::vector<std::string>& arguments);

/// Joins the processes that were started for the mesh of the configuration. `devices`: number of
/// devices of each process (--devices); 0: the mesh divided by the processes.
/// Errors: devices times processes differs from the size of the mesh; those of World::join.
Result<ProcessGroup> join_processes(const TrainConfig& config, int32_t devices);

/// Returns the window of a planned run of `processes` processes on one host, each with `devices`
/// devices; 0 as in join_processes.
/// Errors: devices times processes differs from the size of the mesh.
Result<comm::Window> planned_window(const TrainConfig& config, int32_t processes, int32_t devices);

/// Checks that all processes have the same facts. A collective: every process calls it at the same
/// point. Errors: as comm::check_agreement.
Result<void> check_agreement(const ProcessGroup& group, std::span<const comm::Fact> facts);

/// A barrier: returns once all processes have called it. `label` names it in errors.
/// Errors: as the collectives.
Result<void> process_barrier(const ProcessGroup& group, std::string_view label);

/// Returns the minimum of all processes' values. A collective: every process calls it at the same
/// point. Errors: throws comm::CommunicationError.
int64_t min_over_processes(const ProcessGroup& group, int64_t value);

}  // namespace stow
