// BoundCollective: a collective of a schedule made ready to run with the other positions of a mesh.
// Not a transport; that is the communicator's.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "stowage/base/inside.h"
#include "stowage/ir/schedule.h"
#include "stowage/runtime/comm/mesh_position.h"
#include "stowage/runtime/target.h"

namespace stow::comm {

/// True if the kernel is a collective, or an axis_index, over a group of more than one position.
bool is_collective(const Kernel& kernel);

/// Returns the scratch in bytes of a collective kernel: dense copies of an operand and a result
/// that have gaps.
int64_t collective_scratch_bytes(const Kernel& kernel);

/// A collective kernel, ready to run. One thread at a time runs it, always at the same position.
class BoundCollective {
 public:
  explicit BoundCollective(const Kernel& kernel);
  /// Runs the collective on the calling thread; all members of its group must call it. `inputs`,
  /// `outputs`: addresses of the operands' first elements. `scratch`: collective_scratch_bytes()
  /// bytes; may be null if that is 0.
  /// Errors: CommunicationError; TraceError if `mesh` is null or is not of the kernel's mesh.
  void run(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
           std::byte* scratch, const MeshPosition* mesh, const Target& target) const;

 private:
  void exchange(const std::byte* in, std::byte* out, Communicator& communicator) const;

  Kernel kernel_;
  std::string label_;  // op's place in the source
  mutable std::optional<Group> group_;  // set by the first run
};

}  // namespace stow::comm
