// distributed: the processes that run one program together, and the devices of all of them.
// Not the collectives between them; those are runtime/comm's.
#pragma once

#include <vector>

#include "stowage/runtime/device.h"

namespace stow::distributed {

struct Options {
  /// The devices of this process, each with its capacities and threads; every process has as many.
  /// Empty: one, the default device.
  std::vector<DevicePtr> local_devices = {};
  double timeout_s = 60;  ///< How long a process may be late for a collective.
};

/// Joins the processes that `--processes` or mpirun started together; a process that was started by
/// itself is the only one. Called once, before meshes and arrays are made.
/// Errors: TraceError for a second call, a device that is null or there twice, and where the processes
/// cannot be joined.
void initialize(const Options& options = {});

/// Says that this process has done its part; called before it exits. Without it mpirun takes the process
/// for lost.
void finish();

int process_index();  ///< The number of this process, from 0 on.
int process_count();  ///< How many there are; 1 before initialize().

/// The devices of all processes, process by process. Those of other processes are handles without
/// memory: they can stand in meshes, and nothing can be allocated on them.
std::vector<DevicePtr> devices();
/// The devices of this process; the default device if none were set.
std::vector<DevicePtr> local_devices();
/// Makes these the devices of a process that is the only one: several virtual or CPU devices.
/// Errors: TraceError where there are other processes (give initialize() the devices), for an empty
/// list, and for a device that is null or there twice.
void set_local_devices(std::vector<DevicePtr> devices);

/// The number of the process that a device belongs to.
int process_of(const DevicePtr& device);
/// True if this process can address the memory of the device.
bool is_local(const DevicePtr& device);

}  // namespace stow::distributed
