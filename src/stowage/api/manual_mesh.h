// The mesh of the shard_map whose body is being traced, and the groups that mesh axes form there.
// Not public, and no devices: collectives.h and shard_map.h are the user's.
#pragma once

#include <cstdint>
#include <vector>

#include "stowage/core/mesh_shape.h"
#include "stowage/core/partition_spec.h"
#include "stowage/ir/params.h"

namespace stow {

/// The mesh of the innermost shard_map that this thread traces the body of; null outside of any.
const MeshShape* manual_mesh();

/// While it lives, this thread traces the body of a shard_map over `mesh`, to which it refers.
class ManualMesh {
 public:
  /// Takes effect. `automatic`: axes that are the partitioner's; collectives cannot name them.
  explicit ManualMesh(const MeshShape& mesh, std::vector<int> automatic = {});
  ~ManualMesh();
  ManualMesh(const ManualMesh&) = delete;
  ManualMesh& operator=(const ManualMesh&) = delete;

 private:
  const MeshShape* before_;
  std::vector<int> before_automatic_;
};

/// The group over those axes of manual_mesh(), the first of them the major one. Axes of one
/// position are left out; no axis is left where the group is one position. Errors: TraceError
/// outside of a body; for a name that the mesh has not, or one twice.
ir::CollectiveParams manual_group(const char* what, const PartitionSpec::Axes& names);
/// The same where `groups` divide those of the axes; empty: not. Where a group is one position, no axis is
/// left. Errors: also groups of several sizes, and such as do not hold each index over the axes once.
ir::CollectiveParams manual_group(const char* what, const PartitionSpec::Axes& names,
                                  const std::vector<std::vector<int64_t>>& groups);

}  // namespace stow
