// Positions: the devices of this process that train together and run each program together.
// Not the devices of other processes; communicators reach those.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/runtime/comm/mesh_position.h"
#include "stowage/runtime/comm/world.h"
#include "stowage/session/compile.h"

namespace stow {

/// Buffers by position of this process, then by argument or result of a program.
using PositionBuffers = std::vector<std::vector<DeviceBufferPtr>>;

/// The positions of a mesh that this process holds. One thread at a time uses it.
class Positions {
 public:
  /// One device, without a mesh.
  explicit Positions(DevicePtr device);
  /// `devices`: those of this process, one for each position in order. `world`: all processes,
  /// which have equally many devices; position p of the mesh is rank p. Null: this process has all
  /// positions. `timeout_s`: longest wait for a device in a collective.
  Positions(const MeshShape& mesh, std::vector<DevicePtr> devices, comm::World* world,
            double timeout_s);

  size_t size() const { return at_.size(); }  ///< The number of positions of this process.
  Device& device(size_t i) const { return *at_[i].device; }
  const MeshShape& mesh() const { return mesh_; }  ///< A mesh of rank 0 if there is none.
  int64_t position(size_t i) const { return at_[i].mesh.position; }  ///< Position in the mesh.
  int32_t process() const { return world_ ? world_->process() : 0; }
  int32_t n_processes() const { return world_ ? world_->n_processes() : 1; }
  bool is_first() const { return process() == 0; }  ///< True if this process prints and writes.
  /// Bytes of host memory through which the devices exchange data (World::window_bytes()); 0
  /// without a mesh.
  int64_t window_bytes() const {
    return world_ ? world_->window_bytes() : own_.empty() ? 0 : own_[0]->window_bytes();
  }
  /// The communicator of a device of this process; null without a mesh.
  comm::Communicator* communicator(size_t i = 0) const { return at_[i].mesh.communicator; }

  /// Runs the program at all positions of this process, while other processes run theirs.
  /// `observer`: told of the first position of this process; null: none.
  /// Errors: those of Executable::run(), from the position that failed first; its failure ends all
  /// others.
  PositionBuffers run(const ExecutablePtr& program, const PositionBuffers& arguments,
                      RunObserver* observer = nullptr);
  /// Frees the cached arenas of all devices.
  void drop_arenas();

  /// Returns the values of all processes: a list for each process, in order. All processes must
  /// pass equally many values at the same point. Errors: CommunicationError.
  std::vector<std::vector<int64_t>> gather_over_processes(std::span<const int64_t> values,
                                                          std::string_view label);

 private:
  struct Position {
    DevicePtr device;
    comm::MeshPosition mesh;
  };
  // Returns the program bound for each position; cached in bound_.
  std::span<const ExecutablePtr> bound(const ExecutablePtr& program);

  MeshShape mesh_;
  std::vector<std::unique_ptr<comm::Communicator>> own_;  // without a world
  comm::World* world_ = nullptr;
  std::vector<Position> at_;
  std::map<ExecutablePtr, std::vector<ExecutablePtr>> bound_;
};

}  // namespace stow
