#include "stowage/core/axis_sharding.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "stowage/base/inside.h"

namespace stow {
namespace {

// "8" or "8 or 12": the sizes next to `extent` that `parts` divides; 0 is none.
std::string nearest_divisible(int64_t extent, int64_t parts) {
  const int64_t below = extent / parts * parts, above = below + parts;
  return below == 0 ? fmt::format("{}", above) : fmt::format("{} or {}", below, above);
}

std::string names_of(const MeshAxes& axes, const MeshShape& mesh) {
  std::vector<std::string> names;
  for (int axis : axes) names.push_back(fmt::format("'{}'", mesh.names[static_cast<size_t>(axis)]));
  return fmt::format("{}", fmt::join(names, "+"));
}

}  // namespace

bool AxisSharding::is_whole() const {
  return partial.empty() &&
         std::all_of(axes.begin(), axes.end(), [](const MeshAxes& a) { return a.empty(); });
}

bool AxisSharding::cuts_with(int mesh_axis) const {
  for (const MeshAxes& list : axes)
    if (std::find(list.begin(), list.end(), mesh_axis) != list.end()) return true;
  return false;
}

ArrayType local_type(const ArrayType& type, const AxisSharding& sharding, const MeshShape& mesh) {
  ArrayType local = type;
  for (int i = 0; i < sharding.rank(); ++i)
    local.shape[i] /= mesh.extent_of(sharding.axes[static_cast<size_t>(i)]);
  return local;
}

int64_t part_index(const AxisSharding& sharding, int axis, const MeshShape& mesh,
                   int64_t position) {
  return mesh.index_in_group(position, sharding.axes[static_cast<size_t>(axis)]);
}

std::optional<std::string> mesh_fault(const MeshShape& mesh) {
  if (mesh.names.size() != mesh.extents.size())
    return fmt::format("the mesh has {} names and {} extents; give each axis one of both",
                       mesh.names.size(), mesh.extents.size());
  int64_t size = 1;
  for (size_t i = 0; i < mesh.extents.size(); ++i) {
    if (mesh.names[i].empty()) return fmt::format("axis {} of the mesh has no name", i);
    if (mesh.axis(mesh.names[i]) != static_cast<int>(i))
      return fmt::format("the mesh has two axes named '{}'", mesh.names[i]);
    if (mesh.extents[i] < 1)
      return fmt::format("expected extents of at least 1, axis '{}' of the mesh has {}",
                         mesh.names[i], mesh.extents[i]);
    if (__builtin_mul_overflow(size, mesh.extents[i], &size) || size > int64_t{1} << 31)
      return std::string("the mesh has more than 2^31 positions");
  }
  return std::nullopt;
}

std::optional<std::string> sharding_fault(const ArrayType& type, const AxisSharding& sharding,
                                          const MeshShape& mesh) {
  if (sharding.rank() != type.shape.rank())
    return fmt::format("the sharding has {} axes, {} has {}", sharding.rank(), to_string(type),
                       type.shape.rank());
  std::set<int> seen;
  const auto check = [&](int axis) -> std::optional<std::string> {
    if (axis < 0 || axis >= mesh.rank())
      return fmt::format("mesh axis {} does not exist in {}", axis, to_string(mesh));
    if (!seen.insert(axis).second)
      return fmt::format("mesh axis '{}' is used twice; an axis can cut an array once",
                         mesh.names[static_cast<size_t>(axis)]);
    return std::nullopt;
  };
  for (const MeshAxes& list : sharding.axes)
    for (int axis : list)
      if (auto fault = check(axis)) return fault;
  for (int axis : sharding.partial)
    if (auto fault = check(axis)) return fault;
  if (!std::is_sorted(sharding.partial.begin(), sharding.partial.end()))
    return std::string("the partial axes do not increase");
  for (int i = 0; i < sharding.rank(); ++i) {
    const MeshAxes& axes = sharding.axes[static_cast<size_t>(i)];
    const int64_t parts = mesh.extent_of(axes);
    if (type.shape[i] % parts != 0)
      return fmt::format(
          "axis {} of {} is not divisible into {} parts (mesh axes {}); the nearest "
          "divisible size is {}",
          i, to_string(type), parts, names_of(axes, mesh), nearest_divisible(type.shape[i], parts));
  }
  return std::nullopt;
}

Result<AxisSharding> axis_sharding_of(const PartitionSpec& spec, const ArrayType& type,
                                      const MeshShape& mesh) {
  const auto rank = static_cast<size_t>(type.shape.rank());
  if (spec.entries().size() > rank)
    return fail("{} has {} entries, {} has {} axes; give at most one entry an axis",
                to_string(spec), spec.entries().size(), to_string(type), rank);
  AxisSharding sharding = whole_sharding(type.shape.rank());
  for (size_t i = 0; i < spec.entries().size(); ++i)
    for (const std::string& name : spec.entries()[i].names()) {
      const int axis = mesh.axis(name);
      if (axis < 0)
        return fail("{} names the axis '{}', which {} does not have", to_string(spec), name,
                    to_string(mesh));
      sharding.axes[i].push_back(axis);
    }
  if (auto fault = sharding_fault(type, sharding, mesh))
    return fail("{}: {}", to_string(spec), *fault);
  return sharding;
}

std::string to_string(const AxisSharding& sharding, const MeshShape& mesh) {
  std::vector<std::string> entries;
  for (const MeshAxes& axes : sharding.axes)
    entries.push_back(axes.empty() ? "None" : names_of(axes, mesh));
  std::string text = fmt::format("[{}]", fmt::join(entries, ", "));
  if (!sharding.partial.empty())
    text += fmt::format(" partial {} over {}", reduce_kind_name(sharding.kind),
                        names_of(sharding.partial, mesh));
  return text;
}

}  // namespace stow
