// The mesh of the shard_map whose body is being traced, and the groups that its mesh axes form.
// Not public, and no devices; users see collectives.h and shard_map.h.
#pragma once

#include <cstdint>
#include <vector>

#include "stowage/core/mesh_shape.h"
#include "stowage/core/partition_spec.h"
#include "stowage/ir/params.h"

namespace stow {

/// The mesh of the shard_map whose body this thread is tracing; null outside of such a body.
const MeshShape* manual_mesh();

/// Sets manual_mesh() of this thread to `mesh`, which it refers to, during its lifetime.
class ManualMesh {
 public:
  /// `automatic`: numbers of the mesh axes that the partitioner handles; collectives cannot name
  /// them.
  explicit ManualMesh(const MeshShape& mesh, std::vector<int> automatic = {});
  ~ManualMesh();
  ManualMesh(const ManualMesh&) = delete;
  ManualMesh& operator=(const ManualMesh&) = delete;

 private:
  const MeshShape* before_;
  std::vector<int> before_automatic_;
};

/// Returns the group over these axes of manual_mesh(); the first is the major one. Axes of extent 1
/// are omitted, so a group of one position has no axes. Errors: TraceError outside of a body; for a
/// name that the mesh lacks or that is automatic, or a name that occurs twice.
ir::CollectiveParams manual_group(const char* what, const PartitionSpec::Axes& names);
/// manual_group with AxisIndexGroups, which divide the group; empty: no division. A group of one
/// position has no axes. Errors: also TraceError for groups of different sizes, or that do not hold
/// each index once.
ir::CollectiveParams manual_group(const char* what, const PartitionSpec::Axes& names,
                                  const std::vector<std::vector<int64_t>>& groups);

}  // namespace stow
