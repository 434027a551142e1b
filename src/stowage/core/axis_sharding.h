// AxisSharding: the mesh axes that cut each axis of an array or over which it is a partial result.
// Not a placement: it names no devices and no memory kind. Users write a PartitionSpec.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stowage/base/result.h"
#include "stowage/core/array_type.h"
#include "stowage/core/mesh_shape.h"
#include "stowage/core/partition_spec.h"
#include "stowage/core/reduce_kind.h"

namespace stow {

/// The numbers of axes of a mesh, major first.
using MeshAxes = std::vector<int>;

/// How the positions of a mesh share an array. The array is replicated along mesh axes that are in
/// neither `axes` nor `partial`.
struct AxisSharding {
  /// The mesh axes that cut each axis of the array; an axis with an empty list is whole. No mesh
  /// axis occurs twice.
  std::vector<MeshAxes> axes = {};
  /// Mesh axes, increasing, over which the parts must still be reduced by `kind` to give the array.
  MeshAxes partial = {};
  ReduceKind kind = ReduceKind::kSum;  ///< kSum where nothing is partial.

  int rank() const { return static_cast<int>(axes.size()); }  ///< Rank of the array.
  /// True if every position holds the whole array.
  bool is_whole() const;
  /// True if the mesh axis cuts an axis of the array. Partial axes do not count.
  bool cuts_with(int mesh_axis) const;
  friend bool operator==(const AxisSharding&, const AxisSharding&) = default;  ///< All.
};

/// Returns the sharding of an array of that rank that every position holds whole.
inline AxisSharding whole_sharding(int rank) {
  return {.axes = std::vector<MeshAxes>(static_cast<size_t>(rank))};
}

/// Returns the type of one position's part. The mesh axes must divide the extents (sharding_fault).
ArrayType local_type(const ArrayType& type, const AxisSharding& sharding, const MeshShape& mesh);
/// Returns the index, along array axis `axis`, of the part that a position holds.
int64_t part_index(const AxisSharding& sharding, int axis, const MeshShape& mesh, int64_t position);

/// Returns none if an array of that type can have the sharding; else a sentence with the reason: a
/// mesh axis that does not exist or occurs twice, another rank, an extent that the mesh axes do not
/// divide.
std::optional<std::string> sharding_fault(const ArrayType& type, const AxisSharding& sharding,
                                          const MeshShape& mesh);
/// Returns none if a mesh has as many names as extents, no name twice or empty, no extent below 1
/// and at most 2^31 positions; else a sentence with the reason.
std::optional<std::string> mesh_fault(const MeshShape& mesh);

/// Returns the sharding that a specification denotes for an array of that type on a mesh.
/// Errors: the specification names an axis that the mesh lacks, or one twice; it has more entries
/// than the array has axes; the mesh axes do not divide an extent (the message gives the nearest
/// sizes that they divide).
base::Result<AxisSharding> axis_sharding_of(const PartitionSpec& spec, const ArrayType& type,
                                      const MeshShape& mesh);
/// "['data', None, 'x'+'y']", then " partial sum over 'model'".
std::string to_string(const AxisSharding& sharding, const MeshShape& mesh);

}  // namespace stow
