// World: the processes that run one program together, and the ranks of this one among them.
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
  enum class By { kItself, kLauncher, kMpirun };
  By by = By::kItself;
  int32_t process = 0, n_processes = 1;
  int32_t n_on_host = 1;  ///< Processes of this host, this one included.
  int fd = -1;  ///< File descriptor of the launcher's memory.
};

/// The launch of the environment: STOW_LAUNCH of our launcher ("PROCESS/PROCESSES:FD"), or Open MPI's
/// OMPI_COMM_WORLD_RANK, _SIZE and _LOCAL_SIZE. Errors: a STOW_LAUNCH of another form.
Result<Launch> launch_of_environment();

/// The memory beside programs through which ranks exchange, on one host.
struct Window {
  int64_t bytes = 0;    ///< In one piece of memory.
  int64_t n_sharers = 1;  ///< Devices that share it.

  int64_t bytes_of_device() const { return (bytes + n_sharers - 1) / n_sharers; }  ///< Its share, rounded up.
};
/// The window of processes with so many devices each that were started so; of a process by itself that of
/// a mesh of its devices, or none where a process cannot hold so many (kMostRanks).
Window window_of(const Launch& launch, int32_t devices);

struct WorldOptions {
  /// Ranks of this process; as many of every other. 0: as many as the launcher was told, or one.
  int32_t devices = 1;
  double timeout_s = 60;  ///< How long a rank may be late for a collective.
};

/// This process's part of the world. Joined once in a process.
class World {
 public:
  /// Joins the processes that were started together; alone where this one was started by itself. With
  /// mpirun this initialises MPI.
  /// Errors: the launcher was told another number of devices; mpirun, and this build has no MPI.
  static Result<std::unique_ptr<World>> join(const WorldOptions& options = {});
  virtual ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int32_t process() const { return launch_.process; }
  int32_t n_processes() const { return launch_.n_processes; }
  int32_t n_on_host() const { return launch_.n_on_host; }  ///< Processes of this host.
  int32_t devices() const { return static_cast<int32_t>(communicators_.size()); }
  /// The communicator of a device of this process. It belongs to the world.
  Communicator& communicator(int32_t device = 0) const;
  /// Sets how the ranks of this process reduce (Communicator::set_reduce_order).
  void set_reduce_order(ReduceOrder order);
  /// Bytes of host memory through which the ranks exchange, as window_of() says before there are any.
  /// Bytes of the shared transport exist once a host, bytes of all others once a process.
  int64_t window_bytes() const;
  /// Says that this process has done its part. Called before a normal exit; a process that exits without
  /// it is taken for lost under mpirun.
  virtual void leave() {}

 protected:
  explicit World(Launch launch) : launch_(launch) {}

  Launch launch_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
};

/// One thing that all processes must have alike: "configuration", and its value or the digest of it.
struct Fact {
  std::string name;
  std::string value;
};

/// The version of the program and the instruction set of its kernels.
std::vector<Fact> facts_of_program();

/// Checks that all ranks of a group have the same facts, by digests: constant bytes. All call it with the
/// same names in the same order. `label`: what they are about, for errors of the collective.
/// Errors, at all of them: "version is 0.9.0 at process 0 and 0.8.0 at process 2: expected ...". Values
/// beyond 80 characters are cut there.
Result<void> check_agreement(Communicator& communicator, const Group& group, std::string_view label,
                             std::span<const Fact> facts);
/// The same of all ranks, when a program starts.
Result<void> check_agreement(Communicator& communicator, std::span<const Fact> facts);

}  // namespace stow::comm
