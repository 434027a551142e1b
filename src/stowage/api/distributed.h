// distributed: the processes that run one program together, and the devices of all of them.
// Not the collectives between them; those are runtime/comm's.
#pragma once

#include <vector>

#include "stowage/runtime/comm/reduce_order.h"
#include "stowage/runtime/device.h"

namespace stow::distributed {

/// How a process joins a run.
struct Options {
  /// The devices of this process, each with its capacities and threads. All processes give the same
  /// number of devices. Empty: the devices that set_local_devices() or a DefaultDevice named
  /// before. If none were named, as many CPU devices as `stowage launch --devices` says, by default
  /// one; each has an equal share of the host's memory and cores, and the first is the default
  /// device of the calling thread.
  std::vector<DevicePtr> local_devices = {};
  /// How long a process, or a position of a mesh, may be late for a collective.
  double timeout_s = 60;
  /// The order of sums over devices; the same in all processes. kNative: the transport's own
  /// reduction makes them, if it has one (mpirun's). Their bits then depend on the transport and on
  /// how devices are distributed over processes.
  comm::ReduceOrder reduce = comm::ReduceOrder::kTree;
};

/// Joins the processes that `stowage launch` or mpirun started together. A process that was started
/// alone becomes a run of one process. Called once, before meshes and arrays are made.
/// Errors: TraceError for a second call; for a device that is null or listed twice; for another
/// number of devices than the launcher was told; if the processes cannot be joined; and, in all
/// processes, if they differ in version, instruction set, kind of device or `reduce`.
void initialize(const Options& options = {});

/// Tells the launcher that this process has done its part. Called before the process exits;
/// otherwise mpirun reports the process as lost.
void finish();

int process_index();  ///< The number of this process, from 0 on.
int process_count();  ///< The number of processes; 1 before initialize().

/// Upper bound, in bytes, of the host memory through which devices exchange data. It does not
/// depend on the programs, and no program's memory analysis counts it, since it is allocated once.
/// The processes of a host share it: for N devices there, 2 MiB * N of windows and 1664 N + 128 N^2
/// bytes of states, in whole pages. Pages that no data crosses are not allocated. Under mpirun each
/// process has 3 MiB and 1152 N bytes for each of its devices. A process that is alone has the
/// states only; with one device it has nothing.
int64_t window_bytes();

/// The devices of all processes, process by process. Those of other processes are handles without
/// memory: they can stand in meshes, and nothing can be allocated on them.
std::vector<DevicePtr> devices();
/// The devices of this process; the default device if none were set.
std::vector<DevicePtr> local_devices();
/// Sets the devices of a process that is the only one: several virtual or CPU devices.
/// Errors: TraceError if there are other processes (give the devices to initialize() instead), for
/// an empty list, and for a device that is null or listed twice.
void set_local_devices(std::vector<DevicePtr> devices);

/// The number of the process that a device belongs to.
int process_of(const DevicePtr& device);
/// True if this process can address the memory of the device.
bool is_local(const DevicePtr& device);

}  // namespace stow::distributed
