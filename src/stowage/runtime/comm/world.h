// World: the processes that run one program together, and the ranks of this process.
// Not the launcher, which starts the processes of a host (cli/launch.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/runtime/comm/communicator.h"

namespace stow::comm {

/// How a process was started.
struct Launch {
  enum class By { kItself, kLauncher, kMpirun };  ///< kItself: a single process, no launcher.
  By by = By::kItself;
  int32_t process = 0, n_processes = 1;
  int32_t n_on_host = 1;  ///< Processes of this host, this one included.
  int fd = -1;  ///< File descriptor of the launcher's memory.
};

/// Returns the launch that the environment describes: STOW_LAUNCH, set by the launcher
/// ("PROCESS/PROCESSES:FD"), or Open MPI's OMPI_COMM_WORLD_RANK, _SIZE and _LOCAL_SIZE.
/// Errors: a variable has another form.
Result<Launch> launch_of_environment();

/// The memory outside of programs through which the ranks of a host exchange data.
struct Window {
  int64_t bytes = 0;      ///< Bytes of one block of memory.
  int64_t n_sharers = 1;  ///< Devices that share the block.

  /// Returns the share of one device, rounded up.
  int64_t bytes_of_device() const { return (bytes + n_sharers - 1) / n_sharers; }
};
/// Returns the window of processes with `devices` devices each, started as `launch` says. Empty for
/// one device in all, and for a single process with more than kMostRanks devices, whose
/// distribution over hosts is unknown.
Window window_of(const Launch& launch, int32_t devices);

struct WorldOptions {
  /// Ranks of each process. 0: as many as the launcher was told; 1 without a launcher.
  int32_t devices = 1;
  double timeout_s = 60;  ///< Longest wait for a rank in a collective.
};

/// This process's part of the world. A process joins once.
class World {
 public:
  /// Joins the processes that were started together. A process started by itself is a world of its
  /// own. Under mpirun this initialises MPI.
  /// Errors: options out of range; the launcher was told another number of devices; this process
  /// was started by mpirun and the build has no MPI.
  static Result<std::unique_ptr<World>> join(const WorldOptions& options = {});
  virtual ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int32_t process() const { return launch_.process; }
  int32_t n_processes() const { return launch_.n_processes; }
  int32_t n_on_host() const { return launch_.n_on_host; }  ///< Processes of this host.
  int32_t devices() const { return static_cast<int32_t>(communicators_.size()); }
  /// Returns the communicator of a device of this process. The world owns it.
  Communicator& communicator(int32_t device = 0) const;
  /// Calls Communicator::set_reduce_order() for all ranks of this process.
  void set_reduce_order(ReduceOrder order);
  /// Returns the bytes of host memory through which the ranks exchange data; window_of() predicts
  /// them. With the shared transport, all processes of the host share these bytes; else they are
  /// this process's.
  int64_t window_bytes() const;
  /// Announces a normal exit of this process; must be called before it. Under mpirun, a process
  /// that exits without it counts as lost.
  virtual void leave() {}

 protected:
  explicit World(Launch launch) : launch_(launch) {}

  Launch launch_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
};

/// A value that must be equal in all processes: "configuration", and the value or its digest.
struct Fact {
  std::string name;
  std::string value;
};

/// Returns the version of the program and the instruction set of its kernels.
std::vector<Fact> facts_of_program();

/// Checks that all ranks of a group have the same facts. All members must call it with the same
/// names in the same order. Equal facts cost a constant number of bytes. `label`: the subject, for
/// errors of the collective. Errors, at all members: "version is 0.9.0 at process 0 and 0.8.0 at
/// process 2: expected ...", with values cut after 80 characters.
Result<void> check_agreement(Communicator& communicator, const Group& group, std::string_view label,
                             std::span<const Fact> facts);
/// Checks that all ranks have the same facts, when a program starts.
Result<void> check_agreement(Communicator& communicator, std::span<const Fact> facts);

}  // namespace stow::comm
