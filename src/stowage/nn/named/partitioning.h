// Shardings of NamedArrays by a mapping from names of axes to mesh axes.
// Not a mesh or a partitioner; see api/sharding.h.
#pragma once

#include <map>

#include "stowage/api/memory.h"
#include "stowage/core/mesh_shape.h"
#include "stowage/nn/named/named_array.h"

namespace stow::named {

/// The mesh axes that cut an array axis, by its name, the major one first; axes without an entry
/// are whole: {{"Embed", "data"}, {"Batch", {"replica", "data"}}}.
class ResourceMapping {
 public:
  using Axes = PartitionSpec::Axes;  ///< The mesh axes of one axis.
  ResourceMapping() = default;       ///< Every axis is whole.
  /// Errors: TraceError for a name given twice.
  ResourceMapping(std::initializer_list<std::pair<const char*, Axes>> entries);

  const Axes* find(const std::string& axis) const;  ///< Entry of that name, or null.
  /// Returns a copy with an entry added or replaced.
  ResourceMapping with(const std::string& axis, Axes mesh_axes) const;
  /// Returns a copy with all entries of `other`, which replace entries of the same name.
  ResourceMapping merged(const ResourceMapping& other) const;
  const std::map<std::string, Axes>& entries() const { return entries_; }  ///< By name.

 private:
  std::map<std::string, Axes> entries_;
};
std::string to_string(const ResourceMapping& mapping);  ///< "{Batch: ('replica', 'data')}".

/// Returns the PartitionSpec of an array with these axes, one entry for each. Errors call it
/// `leaf`.
/// Errors:  TraceError if two of the axes are mapped to one mesh axis, naming both.
PartitionSpec pspec_for_axis(const std::vector<Axis>& axes, const ResourceMapping& mapping,
                             const std::string& leaf = "", STOW_AT);
/// Returns the names and extents of a mesh. The functions below take a MeshShape, so they also
/// serve a mesh of devices that this process does not have.
MeshShape shape_of(const sharding::Mesh& mesh);
/// Throws TraceError if the mesh lacks an axis that cuts one of `axes`, or if a size is not
/// divisible; the error names `leaf`, the axis and the next divisible size.
void check_divisible(const std::vector<Axis>& axes, const ResourceMapping& mapping,
                     const MeshShape& mesh, const std::string& leaf = "", STOW_AT);
/// Returns the number of parts into which the mapping cuts an axis. Errors: TraceError if the mesh
/// lacks a mesh axis.
int64_t physical_axis_size(const Axis& axis, const ResourceMapping& mapping, const MeshShape& mesh,
                           STOW_AT);
/// Returns the axis with its size rounded up to one that the mapping can cut evenly.
Axis round_axis_for_partitioning(const Axis& axis, const ResourceMapping& mapping,
                                 const MeshShape& mesh, STOW_AT);

/// Sets this thread's default mapping and mesh while it lives. Scopes nest.
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

/// The implementation of shard(), not for users. A null mapping or mesh means that of the scope.
/// Without a scope, nothing is done if `optional`; else it is an error.
void shard_leaves(const TreeRef& tree, const ResourceMapping* mapping, const sharding::Mesh* mesh,
                  bool optional, SourceLocation at);

/// Returns a tree whose NamedArrays are sharded over the mesh by the mapping, each in its memory
/// kind; other arrays stay as they are. Takes concrete, traced and abstract arrays. An array that
/// already has the sharding is not copied.
/// Errors:  TraceError naming the leaf and its axes if two axes share a mesh axis, the mesh lacks
///          an axis, or a size is not divisible; TraceError if neither the call nor a scope gives a
///          mesh.
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
/// As shard(), by the mapping and mesh of the scope; returns the tree itself if there is no scope.
template <concepts::Tree T>
T auto_sharded(const T& tree, STOW_AT) {
  T copy = tree;
  shard_leaves(tree_ref(copy), nullptr, nullptr, true, at);
  return copy;
}

}  // namespace stow::named
