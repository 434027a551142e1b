#include "stowage/api/sharding.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "stowage/api/trace.h"

namespace stow {
namespace {

// Whether a leaf is the part of a tree that a path names, or lies in it.
bool lies_below(std::string_view leaf, std::string_view path) {
  return path.empty() || leaf == path ||
         (leaf.size() > path.size() && leaf.starts_with(path) && leaf[path.size()] == '/');
}

}  // namespace

MemoryKind memory_kind_of(std::string_view name) {
  if (name.empty()) return MemoryKind::kDevice;
  const std::optional<MemoryKind> kind = parse_memory_kind(name);
  if (!kind)
    fail_here("[sharding] there is no memory kind '{}'; the kinds are device, pinned_host and disk",
              name);
  return *kind;
}

Mesh::Mesh(std::vector<DevicePtr> devices, std::vector<int64_t> shape,
           std::vector<std::string> axis_names)
    : devices_(std::move(devices)), shape_(std::move(shape)), axis_names_(std::move(axis_names)) {
  if (shape_.size() != axis_names_.size())
    fail_here("[mesh] {} extents and {} axis names", shape_.size(), axis_names_.size());
  int64_t n = 1;
  for (size_t i = 0; i < shape_.size(); ++i) {
    if (shape_[i] < 1) fail_here("[mesh] axis '{}' has extent {}", axis_names_[i], shape_[i]);
    // More than there can be devices is as wrong as any other number of them.
    n = std::min<int64_t>(n, int64_t{1} << 31) * std::min<int64_t>(shape_[i], int64_t{1} << 31);
    if (axis_names_[i].empty()) fail_here("[mesh] axis {} has no name", i);
    if (std::find(axis_names_.begin() + static_cast<std::ptrdiff_t>(i) + 1, axis_names_.end(),
                  axis_names_[i]) != axis_names_.end())
      fail_here("[mesh] two axes are called '{}'", axis_names_[i]);
  }
  if (n != static_cast<int64_t>(devices_.size()))
    fail_here("[mesh] {} is a grid of {} devices, {} given", to_string(*this), n, devices_.size());
  if (n > 1)
    fail_here("[mesh] {}: programs run on one device so far, and a mesh has one", to_string(*this));
  if (!devices_[0]) fail_here("[mesh] the device is null");
}

int64_t Mesh::extent(std::string_view axis) const {
  for (size_t i = 0; i < axis_names_.size(); ++i)
    if (axis_names_[i] == axis) return shape_[i];
  fail_here("[mesh] there is no axis '{}'; the axes are {}", axis, fmt::join(axis_names_, ", "));
}

Mesh make_mesh(std::vector<int64_t> shape, std::vector<std::string> axis_names) {
  return Mesh({default_device()}, std::move(shape), std::move(axis_names));
}

std::string to_string(const Mesh& mesh) {
  std::vector<std::string> axes;
  for (size_t i = 0; i < mesh.shape().size(); ++i)
    axes.push_back(fmt::format("'{}': {}", mesh.axis_names()[i], mesh.shape()[i]));
  return fmt::format("Mesh({})", fmt::join(axes, ", "));
}

NamedSharding::NamedSharding(Mesh mesh, PartitionSpec spec, std::string_view memory_kind)
    : mesh_(std::move(mesh)), spec_(std::move(spec)), kind_(memory_kind_of(memory_kind)) {
  std::set<std::string_view> used;
  for (const PartitionSpec::Axes& axes : spec_.entries())
    for (const std::string& name : axes.names()) {
      const std::vector<std::string>& known = mesh_.axis_names();
      if (std::find(known.begin(), known.end(), name) == known.end())
        fail_here("[sharding] {} names '{}', which is no axis of {}", to_string(spec_), name,
                  to_string(mesh_));
      if (!used.insert(name).second)
        fail_here("[sharding] {} names '{}' twice; a mesh axis cuts one axis of an array at most",
                  to_string(spec_), name);
    }
}

MemoryKind Sharding::memory_kind() const {
  return std::visit([](const auto& sharding) { return sharding.memory_kind(); }, of_);
}

DevicePtr Sharding::device() const {
  if (const NamedSharding* sharding = named()) return sharding->mesh().devices()[0];
  return std::get<SingleDeviceSharding>(of_).device();
}

Sharding Sharding::with_memory_kind(std::string_view memory_kind) const {
  return std::visit(
      [&](const auto& sharding) { return Sharding(sharding.with_memory_kind(memory_kind)); }, of_);
}

bool Sharding::is_equivalent_to(const Sharding& other, int) const {
  const auto device_of = [](const Sharding& s) {
    const DevicePtr device = s.device();
    return device ? device : default_device();
  };
  return memory_kind() == other.memory_kind() && device_of(*this) == device_of(other);
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
    fail_here("[{}] {} has {} entries, {} has {} axes", what, to_string(named->spec()),
              entries.size(), to_string(type), type.shape.rank());
  for (size_t axis = 0; axis < entries.size(); ++axis) {
    int64_t parts = 1;
    for (const std::string& name : entries[axis].names()) parts *= named->mesh().extent(name);
    if (type.shape[static_cast<int>(axis)] % parts != 0)
      fail_here("[{}] axis {} of {} is not divisible into {} parts ({})", what, axis,
                to_string(type), parts, to_string(sharding));
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
