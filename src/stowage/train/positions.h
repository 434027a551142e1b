// Positions: the devices of this process that train together, and the programs that they run at the
// same time. Not the other processes, which run the same; a communicator reaches them.
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

/// One thread at a time calls it.
class Positions {
 public:
  /// One device, without a mesh.
  explicit Positions(DevicePtr device);
  /// The devices of this process, one a position, in order. `world`: all processes, with as many devices
  /// each, which are the mesh in the order of their ranks; null where this process has all positions.
  /// `timeout_s`: how long a device may be late for a collective.
  Positions(const MeshShape& mesh, std::vector<DevicePtr> devices, comm::World* world,
            double timeout_s);

  size_t size() const { return at_.size(); }  ///< The number of positions of this process.
  Device& device(size_t i) const { return *at_[i].device; }
  const MeshShape& mesh() const { return mesh_; }  ///< A mesh of rank 0 if there is none.
  int64_t position(size_t i) const { return at_[i].mesh.position; }  ///< In the mesh.
  int32_t process() const { return world_ ? world_->process() : 0; }
  int32_t n_processes() const { return world_ ? world_->n_processes() : 1; }
  bool is_first() const { return process() == 0; }  ///< True if this process prints and writes.
  /// Host memory through which the devices exchange, of this process or, shared, of the host; 0 without a
  /// mesh.
  int64_t window_bytes() const {
    return world_ ? world_->window_bytes() : own_.empty() ? 0 : own_[0]->window_bytes();
  }
  /// The communicator of a device of this process; null without a mesh.
  comm::Communicator* communicator(size_t i = 0) const { return at_[i].mesh.communicator; }

  /// Runs the program at all positions of the mesh. The observer hears of the first position here.
  /// Errors: as Executable::run(), of the position that failed first; the others end by it.
  PositionBuffers run(const ExecutablePtr& program, const PositionBuffers& arguments,
                      RunObserver* observer = nullptr);
  /// Gives the arenas of all devices back.
  void drop_arenas();

  /// The values of all processes, each giving as many: a list a process, in order. All call
  /// it at the same place. Errors: CommunicationError.
  std::vector<std::vector<int64_t>> gather_over_processes(std::span<const int64_t> values,
                                                          std::string_view label);

 private:
  struct Position {
    DevicePtr device;
    comm::MeshPosition mesh;
  };
  // A program bound once a position.
  std::span<const ExecutablePtr> bound(const ExecutablePtr& program);

  MeshShape mesh_;
  std::vector<std::unique_ptr<comm::Communicator>> own_;  // without a world
  comm::World* world_ = nullptr;
  std::vector<Position> at_;
  std::map<ExecutablePtr, std::vector<ExecutablePtr>> bound_;
};

}  // namespace stow
