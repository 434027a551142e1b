// Processes: the processes that run a program together and their devices, as one process sees them;
// for the library and tests. Not public; users call distributed.h.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/runtime/comm/communicator.h"
#include "stowage/runtime/device.h"

namespace stow {

/// Immutable, except for the communicators: a thread that calls a collective holds
/// collectives_mutex().
class Processes {
 public:
  /// A run of one process, with these devices.
  explicit Processes(std::vector<DevicePtr> local, double timeout_s = 60);
  /// Process `index` of `count` processes with equal numbers of devices. `communicator`: that of
  /// its first device, whose rank is `index * ranks_per_process`; it must outlive this object.
  Processes(int index, int count, std::vector<DevicePtr> local, comm::Communicator* communicator,
            int ranks_per_process);
  /// As above, with one communicator for each device of this process, in their order.
  Processes(int index, int count, std::vector<DevicePtr> local,
            std::vector<comm::Communicator*> communicators, double timeout_s = 60);

  int index() const { return index_; }                             ///< The number of this process.
  int count() const { return count_; }                             ///< The number of processes.
  const std::vector<DevicePtr>& local() const { return local_; }   ///< This process's devices.
  const std::vector<DevicePtr>& devices() const { return all_; }   ///< By process, in order.
  /// The number of the process that has a device; this process's for a device that is not in
  /// devices().
  int process_of(const Device* device) const;
  /// The numbers of the processes that have one of these devices, in increasing order.
  std::vector<int> processes_of(const std::vector<DevicePtr>& devices) const;

  /// A thread holds it while it runs collectives between processes (a program over a mesh, a
  /// comparison, a move), so that no two threads use a communicator at once. Threads must acquire
  /// it in the same order in all processes.
  std::mutex& collectives_mutex() const;
  /// How long a position may be late for a collective.
  double timeout_s() const { return timeout_s_; }

  /// The communicator with which a device of this process takes part in collectives over a mesh.
  /// Errors: as communicator(); TraceError for a device that was not given to
  /// distributed::initialize().
  comm::Communicator& communicator_of(const Device* device) const;
  /// The rank of a device of any process in collectives over a mesh. Errors: TraceError for an
  /// unknown device.
  int32_t rank_of(const Device* device) const;

  /// The communicator for collectives between processes. Errors: TraceError in a process that is
  /// alone.
  comm::Communicator& communicator() const;
  /// A group for communicator(). `processes`: numbers in increasing order, this process's among
  /// them.
  comm::Group group_of(const std::vector<int>& processes) const;
  /// The number of the process that has this rank in communicator().
  int process_of_rank(int32_t rank) const { return rank / ranks_per_process_; }

 private:
  int index_ = 0, count_ = 1, ranks_per_process_ = 1;
  std::vector<DevicePtr> local_, all_;
  std::unordered_map<const Device*, int> process_of_;
  std::unordered_map<const Device*, int32_t> rank_of_;
  std::vector<comm::Communicator*> communicators_;  // by local device, or the first device's only
  double timeout_s_ = 60;
  mutable std::mutex collectives_;
};

/// The processes of this thread: those of an ActAsProcess, else those that its process joined.
std::shared_ptr<const Processes> processes();

/// True if a device belongs to another process than this. Cheaper than processes()->process_of().
bool is_of_other_process(const Device* device);

/// For tests in which threads play the role of processes: during its lifetime, processes() returns
/// its argument in this thread.
class ActAsProcess {
 public:
  explicit ActAsProcess(std::shared_ptr<const Processes> processes);  ///< Takes effect at once.
  ~ActAsProcess();
  ActAsProcess(const ActAsProcess&) = delete;
  ActAsProcess& operator=(const ActAsProcess&) = delete;

 private:
  std::shared_ptr<const Processes> before_;
};

}  // namespace stow
