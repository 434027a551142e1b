// Processes: what one process knows of all that run a program together; for the library and tests.
// Not public; users call distributed.h.
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

/// Immutable, but for the communicators: who calls a collective of them holds collectives_mutex().
class Processes {
 public:
  /// A process by itself, with these devices.
  explicit Processes(std::vector<DevicePtr> local, double timeout_s = 60);
  /// Process `index` of `count`, each with as many devices. `communicator` is that of its first
  /// device, of rank `index * ranks_per_process`, and outlives this.
  Processes(int index, int count, std::vector<DevicePtr> local, comm::Communicator* communicator,
            int ranks_per_process);
  /// The same with one communicator a device of this process, in their order.
  Processes(int index, int count, std::vector<DevicePtr> local,
            std::vector<comm::Communicator*> communicators, double timeout_s = 60);

  int index() const { return index_; }                             ///< The number of this process.
  int count() const { return count_; }                             ///< The number of processes.
  const std::vector<DevicePtr>& local() const { return local_; }   ///< This process's devices.
  const std::vector<DevicePtr>& devices() const { return all_; }   ///< Every process's devices, in order.
  /// The process of a device; this one for devices that are in no list.
  int process_of(const Device* device) const;
  /// The processes that have one of these devices, increasing.
  std::vector<int> processes_of(const std::vector<DevicePtr>& devices) const;

  /// Held by the thread of this process that is in collectives: in a program over a mesh, which is many
  /// of them, in a comparison or a move. Others wait, so that no two enter one communicator. The order in
  /// which threads come must be the same in all processes.
  std::mutex& collectives_mutex() const;
  double timeout_s() const { return timeout_s_; }  ///< How long a position may be late for a collective.

  /// That of the mesh collectives of a device of this process. Errors: as communicator().
  comm::Communicator& communicator_of(const Device* device) const;
  /// The rank of a device of any process in those collectives.
  int32_t rank_of(const Device* device) const;

  /// For collectives between processes. Errors: TraceError in a process by itself.
  comm::Communicator& communicator() const;
  /// These processes, increasing, as a group; this one is among them.
  comm::Group group_of(const std::vector<int>& processes) const;
  /// The process of a rank of such a group.
  int process_of_rank(int32_t rank) const { return rank / ranks_per_process_; }

 private:
  int index_ = 0, count_ = 1, ranks_per_process_ = 1;
  std::vector<DevicePtr> local_, all_;
  std::unordered_map<const Device*, int> process_of_;
  std::unordered_map<const Device*, int32_t> rank_of_;
  std::vector<comm::Communicator*> communicators_;  // by local device, or of the first alone
  double timeout_s_ = 60;
  mutable std::mutex collectives_;
};

/// The processes that this thread is one of: of a guard below, else those that its process joined.
std::shared_ptr<const Processes> processes();

/// True if a device belongs to another process than this; cheaper than the above.
bool is_of_other_process(const Device* device);

/// While it lives, this thread is one of those processes: so threads stand for processes in tests.
class ActAsProcess {
 public:
  explicit ActAsProcess(std::shared_ptr<const Processes> processes);  ///< Takes effect.
  ~ActAsProcess();
  ActAsProcess(const ActAsProcess&) = delete;
  ActAsProcess& operator=(const ActAsProcess&) = delete;

 private:
  std::shared_ptr<const Processes> before_;
};

}  // namespace stow
