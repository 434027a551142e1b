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
  int fd = -1;  ///< Of the launcher's memory.
};

/// What the environment says: STOW_LAUNCH of our launcher ("PROCESS/PROCESSES:FD"), or Open MPI's
/// OMPI_COMM_WORLD_RANK and _SIZE. Errors: a STOW_LAUNCH of another form.
Result<Launch> launch_of_environment();

struct WorldOptions {
  int32_t devices = 1;    ///< Ranks of this process; as many of every other.
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
  int32_t devices() const { return static_cast<int32_t>(communicators_.size()); }
  /// The communicator of a device of this process. It belongs to the world.
  Communicator& communicator(int32_t device = 0) const;
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

/// Checks that every process has the same facts, by digests: constant bytes. All call it with the same
/// names in the same order.
/// Errors, at all of them: "version is 0.9.0 at process 0 and 0.8.0 at process 2: expected ...". Values
/// beyond 80 characters are cut there.
Result<void> check_agreement(Communicator& communicator, std::span<const Fact> facts);

}  // namespace stow::comm
