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

/// True if a kernel of that op needs the other positions of its mesh.
bool is_collective(const Kernel& kernel);

/// Scratch in bytes of such a kernel: dense copies of an operand and a result that have gaps.
int64_t collective_scratch_bytes(const Kernel& kernel);

/// One thread at a time runs it, always at the same position.
class BoundCollective {
 public:
  explicit BoundCollective(const Kernel& kernel);
  /// Runs it with all members of its group, on the calling thread alone. `scratch` is of
  /// collective_scratch_bytes(), and may be null where that is 0.
  /// Errors: CommunicationError; TraceError where `mesh` is null or is another mesh's.
  void run(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
           std::byte* scratch, const MeshPosition* mesh, const Target& target) const;

 private:
  void exchange(const std::byte* in, std::byte* out, Communicator& communicator) const;

  Kernel kernel_;
  std::string label_;  // op's place in the source
  mutable std::optional<Group> group_;
};

}  // namespace stow::comm
