// Names of axes mapped to axes of a mesh: where NamedArrays of a tree lie.
// Not a mesh or a partitioner; see api/sharding.h.
#pragma once

#include <map>

#include "stowage/api/memory.h"
#include "stowage/core/mesh_shape.h"
#include "stowage/nn/named/named_array.h"

namespace stow::named {

/// Mesh axes that cut an axis of each name, the major one first; axes without an entry are whole:
/// {{"Embed", "data"}, {"Batch", {"replica", "data"}}}.
class ResourceMapping {
 public:
  using Axes = PartitionSpec::Axes;  ///< The mesh axes of one axis.
  ResourceMapping() = default;       ///< Every axis is whole.
  /// Errors: TraceError for a name given twice.
  ResourceMapping(std::initializer_list<std::pair<const char*, Axes>> entries);

  const Axes* find(const std::string& axis) const;  ///< Entry of that name, or null.
  /// This one with an entry more, or another one for that name.
  ResourceMapping with(const std::string& axis, Axes mesh_axes) const;
  /// This one with all entries of another, which count where both have one.
  ResourceMapping merged(const ResourceMapping& other) const;
  const std::map<std::string, Axes>& entries() const { return entries_; }  ///< By name.

 private:
  std::map<std::string, Axes> entries_;
};
std::string to_string(const ResourceMapping& mapping);  ///< "{Batch: ('replica', 'data')}".

/// The specification of an array with these axes, one entry an axis. `leaf` is what errors call it.
/// Errors:  TraceError where two of the axes are mapped to one mesh axis, naming both.
PartitionSpec pspec_for_axis(const std::vector<Axis>& axes, const ResourceMapping& mapping,
                             const std::string& leaf = "", STOW_AT);
/// The names and extents of a mesh, which is all that the next functions read: a mesh of devices
/// that are not here has them too.
MeshShape shape_of(const sharding::Mesh& mesh);
/// Throws TraceError where the mesh lacks an axis that cuts one of these, or a size is not
/// divisible; it names `leaf`, the axis and the next size that is.
void check_divisible(const std::vector<Axis>& axes, const ResourceMapping& mapping,
                     const MeshShape& mesh, const std::string& leaf = "", STOW_AT);
/// The number of parts that the mapping cuts an axis into. Errors: TraceError where the mesh lacks
/// one.
int64_t physical_axis_size(const Axis& axis, const ResourceMapping& mapping, const MeshShape& mesh,
                           STOW_AT);
/// The axis with the least size that the mapping can cut evenly and that is not below its own.
Axis round_axis_for_partitioning(const Axis& axis, const ResourceMapping& mapping,
                                 const MeshShape& mesh, STOW_AT);

/// While it lives, this thread's mapping and mesh where a function is given none. Scopes nest.
class AxisMappingScope {
 public:
  explicit AxisMappingScope(ResourceMapping mapping, std::optional<sharding::Mesh> mesh = {});
  ~AxisMappingScope();
  AxisMappingScope(const AxisMappingScope&) = delete;
  AxisMappingScope& operator=(const AxisMappingScope&) = delete;

 private:
  friend struct CurrentScope;
  ResourceMapping mapping_;
  std::optional<sharding::Mesh> mesh_;
  const AxisMappingScope* before_;
};

/// For the library: what shard does. Null: those of the scope; without a scope nothing is done
/// where `optional`, and else it is an error.
void shard_leaves(const TreeRef& tree, const ResourceMapping* mapping, const sharding::Mesh* mesh,
                  bool optional, SourceLocation at);

/// A tree whose NamedArrays lie over the mesh as the mapping says, each in the kind of memory where
/// it was; other arrays stay as they are. Works on concrete, traced and abstract arrays; where it
/// lies so already it is no copy. Errors:  TraceError naming the leaf and its axes where two axes
/// share a mesh axis, the mesh has no
///          such axis, or a size is not divisible; where no mesh is given and no scope has one.
/// Source:  Haliax's shard.
template <concepts::Tree T>
T shard(const T& tree, const ResourceMapping& mapping, const sharding::Mesh& mesh, STOW_AT) {
  T copy = tree;
  shard_leaves(tree_ref(copy), &mapping, &mesh, false, at);
  return copy;
}
template <concepts::Tree T>
T shard(const T& tree, const ResourceMapping& mapping, STOW_AT) {  ///< Over the scope's mesh.
  T copy = tree;
  shard_leaves(tree_ref(copy), &mapping, nullptr, false, at);
  return copy;
}
/// The same by the mapping and mesh of the scope; the tree itself where there is no scope.
template <concepts::Tree T>
T auto_sharded(const T& tree, STOW_AT) {
  T copy = tree;
  shard_leaves(tree_ref(copy), nullptr, nullptr, true, at);
  return copy;
}

}  // namespace stow::named
