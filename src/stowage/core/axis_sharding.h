// AxisSharding: which axes of a mesh cut each axis of an array, and over which it is a partial result.
// Not a placement: it names neither devices nor a memory kind; PartitionSpec is its form for users.
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

/// How the positions of a mesh share an array. Mesh axes that stand nowhere hold copies.
struct AxisSharding {
  /// By axis of the array, the mesh axes that cut it; none: it is whole. No mesh axis is there twice.
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

/// The sharding of an array of that rank that lies whole everywhere.
inline AxisSharding whole_sharding(int rank) {
  return {.axes = std::vector<MeshAxes>(static_cast<size_t>(rank))};
}

/// The type of the part at one position. The extents must divide (check_sharding).
ArrayType local_type(const ArrayType& type, const AxisSharding& sharding, const MeshShape& mesh);
/// The number of the part along array axis `axis` that a position holds.
int64_t part_index(const AxisSharding& sharding, int axis, const MeshShape& mesh, int64_t position);

/// None if an array of that type can lie so on the mesh; else a sentence that says why not: a mesh
/// axis that does not exist or is there twice, another rank, an extent that does not divide.
std::optional<std::string> sharding_fault(const ArrayType& type, const AxisSharding& sharding,
                                          const MeshShape& mesh);
/// None if a mesh has as many names as extents, no name twice or empty, no extent below 1 and at
/// most 2^31 positions; else a sentence.
std::optional<std::string> mesh_fault(const MeshShape& mesh);

/// The sharding of an array of that type that a specification means on a mesh.
/// Errors: an axis that the mesh has not, one that is there twice, more entries than the array has
/// axes, an extent that the mesh axes do not divide (names the nearest sizes that they do).
base::Result<AxisSharding> axis_sharding_of(const PartitionSpec& spec, const ArrayType& type,
                                      const MeshShape& mesh);
/// "['data', None, 'x'+'y']", then " partial sum over 'model'".
std::string to_string(const AxisSharding& sharding, const MeshShape& mesh);

}  // namespace stow
