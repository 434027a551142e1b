#include "stowage/core/mesh_shape.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace stow {

int64_t MeshShape::size() const {
  int64_t n = 1;
  for (int64_t extent : extents) n *= extent;
  return n;
}

int MeshShape::axis(std::string_view name) const {
  const auto found = std::find(names.begin(), names.end(), name);
  return found == names.end() ? -1 : static_cast<int>(found - names.begin());
}

int64_t MeshShape::extent_of(std::span<const int> axes) const {
  int64_t n = 1;
  for (int axis : axes) n *= extents[static_cast<size_t>(axis)];
  return n;
}

std::vector<int64_t> MeshShape::coordinates(int64_t position) const {
  std::vector<int64_t> result(extents.size());
  for (size_t i = extents.size(); i-- > 0;) {
    result[i] = position % extents[i];
    position /= extents[i];
  }
  return result;
}

int64_t MeshShape::index_in_group(int64_t position, std::span<const int> axes) const {
  const std::vector<int64_t> at = coordinates(position);
  int64_t index = 0;
  for (int axis : axes)
    index = index * extents[static_cast<size_t>(axis)] + at[static_cast<size_t>(axis)];
  return index;
}

std::vector<int64_t> MeshShape::group(int64_t position, std::span<const int> axes) const {
  std::vector<int64_t> at = coordinates(position);
  std::vector<int64_t> positions;
  const int64_t n = extent_of(axes);
  for (int64_t index = 0; index < n; ++index) {
    int64_t rest = index;
    for (size_t i = axes.size(); i-- > 0;) {
      const auto axis = static_cast<size_t>(axes[i]);
      at[axis] = rest % extents[axis];
      rest /= extents[axis];
    }
    int64_t member = 0;
    for (size_t i = 0; i < extents.size(); ++i) member = member * extents[i] + at[i];
    positions.push_back(member);
  }
  return positions;
}

std::string to_string(const MeshShape& shape) {
  std::vector<std::string> axes;
  for (size_t i = 0; i < shape.extents.size(); ++i)
    axes.push_back(fmt::format("'{}': {}", shape.names[i], shape.extents[i]));
  return fmt::format("Mesh({})", fmt::join(axes, ", "));
}

}  // namespace stow
