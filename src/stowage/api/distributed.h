// distributed: the processes that run one program together, and the devices of all of them.
// Not the collectives between them; those are runtime/comm's.
#pragma once

#include <vector>

#include "stowage/runtime/comm/reduce_order.h"
#include "stowage/runtime/device.h"

namespace stow::distributed {

struct Options {
  /// The devices of this process, each with its capacities and threads; every process has as many.
  /// Empty: those that set_local_devices() or a DefaultDevice named before; else as many CPU devices as
  /// `stowage launch --devices` says, one without it. Each of these has an equal share of the host's
  /// memory and cores, and the first is the default device of the calling thread.
  std::vector<DevicePtr> local_devices = {};
  /// How long a process, or a position of a mesh, may be late for a collective.
  double timeout_s = 60;
  /// kNative: sums over devices are made by the transport's own reduction, if it has one (mpirun's), and
  /// their bits then depend on it and on how devices are put into processes. All processes give the same.
  comm::ReduceOrder reduce = comm::ReduceOrder::kTree;
};

/// Joins the processes that `stowage launch` or mpirun started together; a process that was started by
/// itself is the only one. Called once, before meshes and arrays are made.
/// Errors: TraceError for a second call, a device that is null or there twice, another number of devices
/// than the launcher was told, where the processes cannot be joined, and, in all of them, where they differ
/// in version, instruction set, kind of device or `reduce`.
void initialize(const Options& options = {});

/// Says that this process has done its part; called before it exits. Without it mpirun takes the process
/// for lost.
void finish();

int process_index();  ///< The number of this process, from 0 on.
int process_count();  ///< How many there are; 1 before initialize().

/// Bytes of host memory, at most, through which devices exchange, whatever the programs; the analysis of a
/// program does not count them, since they are there once. The processes of a host share them: for N devices
/// there 2 MiB N of windows, 1664 N + 128 N^2 of states, in pages. Pages that nothing crosses do not exist.
/// Under mpirun each process has 3 MiB and 1152 N bytes a device. A process by itself has the states alone,
/// and with one device nothing.
int64_t window_bytes();

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
