// MeshShape: the axes of a mesh by name and extent, and where a position stands in it.
// Not a mesh: there are no devices here (api/sharding.h), so that plans need none.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stow {

/// A grid of positions, row-major: the last axis is the fastest. A position is a number from 0 up to
/// size(); the device at that position has it as its rank in collectives over the mesh.
struct MeshShape {
  std::vector<std::string> names;  ///< By axis; each is there once and none is empty.
  std::vector<int64_t> extents;    ///< By axis; each at least 1.

  int rank() const { return static_cast<int>(extents.size()); }  ///< The number of axes.
  int64_t size() const;                                          ///< The number of positions.
  /// The number of the axis of that name; -1 where there is none.
  int axis(std::string_view name) const;
  /// The product of the extents of those axes: how many positions form a group over them.
  int64_t extent_of(std::span<const int> axes) const;

  /// The coordinates of a position, by axis.
  std::vector<int64_t> coordinates(int64_t position) const;
  /// The index of a position in its group over `axes`, the first of them the major one.
  int64_t index_in_group(int64_t position, std::span<const int> axes) const;
  /// The positions of the group over `axes` that holds `position`, by their index in it.
  std::vector<int64_t> group(int64_t position, std::span<const int> axes) const;

  friend bool operator==(const MeshShape&, const MeshShape&) = default;  ///< Names and extents.
};

/// "Mesh('data': 4, 'model': 2)".
std::string to_string(const MeshShape& shape);

}  // namespace stow
