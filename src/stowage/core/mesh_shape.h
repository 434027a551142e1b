// MeshShape: the names and extents of a mesh's axes, and the arithmetic of positions and groups.
// Not a mesh of devices (api/sharding.h); plans are made without devices.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stow {

/// A grid of positions, numbered row-major from 0 to size() - 1: the last axis varies fastest. The
/// number of a position is the rank of its device in collectives over the mesh.
struct MeshShape {
  std::vector<std::string> names;  ///< By axis; unique and not empty.
  std::vector<int64_t> extents;    ///< By axis; each at least 1.

  int rank() const { return static_cast<int>(extents.size()); }  ///< The number of axes.
  int64_t size() const;                                          ///< The number of positions.
  /// Returns the number of the axis of that name; -1 if there is none.
  int axis(std::string_view name) const;
  /// Returns the product of the extents of those axes, which is the size of a group over them.
  int64_t extent_of(std::span<const int> axes) const;

  /// Returns the coordinates of a position, by axis.
  std::vector<int64_t> coordinates(int64_t position) const;
  /// Returns the index of a position in its group over `axes`; the first axis is the major one.
  int64_t index_in_group(int64_t position, std::span<const int> axes) const;
  /// Returns the positions of the group over `axes` that contains `position`, in the order of their
  /// index_in_group.
  std::vector<int64_t> group(int64_t position, std::span<const int> axes) const;

  friend bool operator==(const MeshShape&, const MeshShape&) = default;  ///< Names and extents.
};

/// "Mesh('data': 4, 'model': 2)".
std::string to_string(const MeshShape& shape);

}  // namespace stow
