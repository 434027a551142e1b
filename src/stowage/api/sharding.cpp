#include "stowage/api/sharding.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "stowage/api/distributed.h"
#include "stowage/api/trace.h"
#include "stowage/core/axis_sharding.h"

namespace stow {
namespace {

// True if a leaf is the part of a tree that a path names, or lies in it.
bool lies_below(std::string_view leaf, std::string_view path) {
  return path.empty() || leaf == path ||
         (leaf.size() > path.size() && leaf.starts_with(path) && leaf[path.size()] == '/');
}

}  // namespace

MemoryKind memory_kind_of(std::string_view name) {
  if (name.empty()) return MemoryKind::kDevice;
  const std::optional<MemoryKind> kind = parse_memory_kind(name);
  if (!kind)
    trace_error_here(
        "[sharding] there is no memory kind '{}'; the kinds are device, pinned_host and disk",
        name);
  return *kind;
}

Mesh::Mesh(std::vector<DevicePtr> devices, std::vector<int64_t> shape,
           std::vector<std::string> axis_names) {
  MeshShape grid{std::move(axis_names), std::move(shape)};
  if (const auto fault = mesh_fault(grid)) trace_error_here("[mesh] {}", *fault);
  const int64_t n = grid.size();
  of_ = std::make_shared<const Content>(Content{std::move(devices), std::move(grid)});
  if (n != size())
    trace_error_here("[mesh] expected {} devices for {}, got {}", n, to_string(*this), size());
  std::set<const Device*> seen;
  for (const DevicePtr& device : of_->devices) {
    if (!device) trace_error_here("[mesh] the device is null");
    if (!seen.insert(device.get()).second)
      trace_error_here("[mesh] the device {}:{} is in {} twice; a mesh has each device once",
                       device->name(), device->number(), to_string(*this));
  }
}

int64_t Mesh::extent(std::string_view axis) const {
  const int i = mesh_shape().axis(axis);
  if (i < 0)
    trace_error_here("[mesh] there is no axis '{}'; the axes are {}", axis,
                     fmt::join(axis_names(), ", "));
  return shape()[static_cast<size_t>(i)];
}

Mesh make_mesh(std::vector<int64_t> shape, std::vector<std::string> axis_names) {
  return make_mesh(std::move(shape), std::move(axis_names), distributed::devices());
}

Mesh make_mesh(std::vector<int64_t> shape, std::vector<std::string> axis_names,
               std::vector<DevicePtr> devices) {
  return Mesh(std::move(devices), std::move(shape), std::move(axis_names));
}

std::string to_string(const Mesh& mesh) { return to_string(mesh.mesh_shape()); }

NamedSharding::NamedSharding(Mesh mesh, PartitionSpec spec, std::string_view memory_kind)
    : mesh_(std::move(mesh)), spec_(std::move(spec)), kind_(memory_kind_of(memory_kind)) {
  std::set<std::string_view> used;
  for (const PartitionSpec::Axes& axes : spec_.entries())
    for (const std::string& name : axes.names()) {
      const std::vector<std::string>& known = mesh_.axis_names();
      if (std::find(known.begin(), known.end(), name) == known.end())
        trace_error_here("[sharding] expected axes of {}, got '{}' in {}", to_string(mesh_), name,
                         to_string(spec_));
      if (!used.insert(name).second)
        trace_error_here(
            "[sharding] {} names '{}' twice; a mesh axis cuts one axis of an array at most",
            to_string(spec_), name);
    }
}

std::vector<int> NamedSharding::axes_of(const PartitionSpec::Axes& entry) const {
  std::vector<int> axes;
  for (const std::string& name : entry.names()) axes.push_back(mesh_.mesh_shape().axis(name));
  return axes;
}

Dims NamedSharding::parts(int rank) const {
  const std::vector<PartitionSpec::Axes>& entries = spec_.entries();
  if (entries.size() > static_cast<size_t>(rank))
    trace_error_here("[sharding] {} has {} entries, an array of rank {} has {} axes",
                     to_string(spec_), entries.size(), rank, rank);
  Dims parts(static_cast<size_t>(rank), 1);
  for (size_t axis = 0; axis < entries.size(); ++axis)
    parts[axis] = mesh_.mesh_shape().extent_of(axes_of(entries[axis]));
  return parts;
}

Tiling NamedSharding::tiling(const Shape& shape) const {
  check_sharding("sharding", *this, ArrayType{.shape = shape});
  return Tiling(shape, parts(shape.rank()));
}

int64_t NamedSharding::tile_at(int64_t position) const {
  std::vector<int> axes;
  for (const PartitionSpec::Axes& entry : spec_.entries())
    for (int axis : axes_of(entry)) axes.push_back(axis);
  return mesh_.mesh_shape().index_in_group(position, axes);
}

int64_t NamedSharding::replica_at(int64_t position) const {
  std::set<int> used;
  for (const PartitionSpec::Axes& entry : spec_.entries())
    for (int axis : axes_of(entry)) used.insert(axis);
  std::vector<int> unused;
  for (int axis = 0; axis < mesh_.mesh_shape().rank(); ++axis)
    if (!used.contains(axis)) unused.push_back(axis);
  return mesh_.mesh_shape().index_in_group(position, unused);
}

MemoryKind Sharding::memory_kind() const {
  return std::visit([](const auto& sharding) { return sharding.memory_kind(); }, of_);
}

DevicePtr Sharding::device() const {
  if (const NamedSharding* sharding = named())
    return sharding->mesh().size() == 1 ? sharding->mesh().devices()[0] : nullptr;
  return std::get<SingleDeviceSharding>(of_).device();
}

std::vector<DevicePtr> Sharding::devices() const {
  if (const NamedSharding* sharding = named()) return sharding->mesh().devices();
  const DevicePtr one = device();
  return one ? std::vector<DevicePtr>{one} : std::vector<DevicePtr>();
}

Sharding Sharding::with_memory_kind(std::string_view memory_kind) const {
  return std::visit(
      [&](const auto& sharding) { return Sharding(sharding.with_memory_kind(memory_kind)); }, of_);
}

bool Sharding::is_equivalent_to(const Sharding& other, int rank) const {
  if (memory_kind() != other.memory_kind()) return false;
  const auto parts_of = [&](const Sharding& s) {
    return s.named() ? s.named()->parts(rank) : Dims(static_cast<size_t>(rank), 1);
  };
  const auto tiles_of = [](const Sharding& s) {
    std::map<const Device*, int64_t> tiles;
    if (const NamedSharding* named = s.named())
      for (int64_t i = 0; i < named->mesh().size(); ++i)
        tiles[named->mesh().devices()[static_cast<size_t>(i)].get()] = named->tile_at(i);
    else
      tiles[s.device() ? s.device().get() : default_device().get()] = 0;
    return tiles;
  };
  const auto tiles = tiles_of(*this);
  if (tiles != tiles_of(other)) return false;
  return tiles.size() == 1 || parts_of(*this) == parts_of(other);
}

std::string to_string(const Sharding& sharding) {
  const std::string_view kind = memory_kind_name(sharding.memory_kind());
  if (const NamedSharding* named = sharding.named())
    return fmt::format("NamedSharding({}, {}, {})", to_string(named->mesh()),
                       to_string(named->spec()), kind);
  return fmt::format("SingleDeviceSharding({})", kind);
}

void check_sharding(std::string_view what, const Sharding& sharding, const ArrayType& type) {
  const NamedSharding* named = sharding.named();
  if (!named) return;
  const std::vector<PartitionSpec::Axes>& entries = named->spec().entries();
  if (entries.size() > static_cast<size_t>(type.shape.rank()))
    trace_error_here("[{}] {} has {} entries, {} has {} axes", what, to_string(named->spec()),
                     entries.size(), to_string(type), type.shape.rank());
  for (size_t axis = 0; axis < entries.size(); ++axis) {
    int64_t parts = 1;
    for (const std::string& name : entries[axis].names()) parts *= named->mesh().extent(name);
    const int64_t extent = type.shape[static_cast<int>(axis)];
    if (extent % parts == 0) continue;
    const int64_t below = extent / parts * parts;
    trace_error_here(
        "[{}] axis {} of {} is not divisible into {} parts ({}); the nearest {}", what, axis,
        to_string(type), parts, to_string(sharding),
        below == 0 ? fmt::format("size that is: {}", parts)
                   : fmt::format("sizes that are: {} and {}", below, below + parts));
  }
}

const Sharding* ShardingsByPath::find(std::string_view path) const {
  const Sharding* found = nullptr;
  size_t length = 0;
  for (const auto& [part, sharding] : by_path_)
    if (lies_below(path, part) && (!found || part.size() > length)) {
      found = &sharding;
      length = part.size();
    }
  return found;
}

std::optional<std::string> ShardingsByPath::unknown(
    const std::vector<std::string>& part_paths) const {
  for (const auto& entry : by_path_)
    if (std::find(part_paths.begin(), part_paths.end(), entry.first) == part_paths.end())
      return entry.first;
  return std::nullopt;
}

}  // namespace stow
