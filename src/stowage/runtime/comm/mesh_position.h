// MeshPosition: the position of a mesh at which a program runs, and its communicator.
// Not a mesh of devices; api/sharding.h has that.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/core/mesh_shape.h"
#include "stowage/ir/params.h"
#include "stowage/runtime/comm/communicator.h"

namespace stow::comm {

/// One position of a mesh, and the ranks of all positions. One thread at a time uses it.
struct MeshPosition {
  Communicator* communicator = nullptr;  ///< Communicator of the rank at `position`.
  std::vector<int32_t> ranks;            ///< By position of the mesh, row-major.
  int64_t position = 0;

  /// Returns the group over `axes` of the mesh that contains this position.
  Group group(const MeshShape& mesh, std::span<const int> axes) const {
    Group result;
    for (int64_t member : mesh.group(position, axes))
      result.ranks.push_back(ranks[static_cast<size_t>(member)]);
    result.index = static_cast<int32_t>(mesh.index_in_group(position, axes));
    return result;
  }
  /// Returns the group of a collective that contains this position.
  Group group(const CollectiveParams& params) const {
    const Group all = group(params.mesh, params.axes);
    if (params.groups.empty()) return all;
    const auto size = static_cast<std::ptrdiff_t>(params.group_size());
    const auto own = std::find(params.groups.begin(), params.groups.end(), all.index);
    const std::ptrdiff_t place = own - params.groups.begin(), first = place / size * size;
    Group result;
    for (std::ptrdiff_t i = first; i < first + size; ++i)
      result.ranks.push_back(
          all.ranks[static_cast<size_t>(params.groups[static_cast<size_t>(i)])]);
    result.index = static_cast<int32_t>(place - first);
    return result;
  }
};

}  // namespace stow::comm
