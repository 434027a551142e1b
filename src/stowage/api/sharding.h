// Shardings: the devices that hold an array, its division into parts, and its memory kind.
// Not the arrays themselves; shards.h has their parts.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "stowage/core/array_type.h"
#include "stowage/core/mesh_shape.h"
#include "stowage/core/partition_spec.h"
#include "stowage/core/tiling.h"
#include "stowage/runtime/device.h"

namespace stow {

/// The memory kind of that name: "device", "pinned_host" or "disk"; "" is "device".
/// Errors: TraceError that lists the valid names.
MemoryKind memory_kind_of(std::string_view name);

namespace sharding {

/// A grid of devices whose axes have names. Copies are cheap; they share their content.
class Mesh {
 public:
  /// `devices`: row-major over `shape`; they may belong to other processes (distributed.h).
  /// Errors: TraceError if the counts differ, an extent is below 1, a name is empty or given twice,
  /// or a device is null or given twice.
  Mesh(std::vector<DevicePtr> devices, std::vector<int64_t> shape,
       std::vector<std::string> axis_names);

  const std::vector<DevicePtr>& devices() const { return of_->devices; }     ///< Row-major.
  const MeshShape& mesh_shape() const { return of_->shape; }                 ///< Extents and names.
  const std::vector<int64_t>& shape() const { return of_->shape.extents; }   ///< Extents by axis.
  const std::vector<std::string>& axis_names() const { return of_->shape.names; }  ///< By axis.
  int64_t size() const { return static_cast<int64_t>(of_->devices.size()); }  ///< Device count.
  /// The extent of the axis of that name. Errors: TraceError that lists the names.
  int64_t extent(std::string_view axis) const;
  /// True if names, extents and devices are the same.
  friend bool operator==(const sharding::Mesh& a, const sharding::Mesh& b) {
    return a.of_ == b.of_ || *a.of_ == *b.of_;
  }

 private:
  struct Content {
    std::vector<DevicePtr> devices;
    MeshShape shape;
    friend bool operator==(const Content&, const Content&) = default;
  };
  std::shared_ptr<const Content> of_;
};

}  // namespace sharding

/// A mesh of all devices of all processes (distributed::devices()), in their order:
/// make_mesh({4, 2}, {"data", "model"}). Errors: as Mesh.
sharding::Mesh make_mesh(std::vector<int64_t> shape, std::vector<std::string> axis_names);
/// A mesh of these devices. Errors: as Mesh.
sharding::Mesh make_mesh(std::vector<int64_t> shape, std::vector<std::string> axis_names,
                         std::vector<DevicePtr> devices);
/// "Mesh('data': 1, 'model': 1)".
std::string to_string(const sharding::Mesh& mesh);

/// An array that lies whole on one device, in one of its memories.
class SingleDeviceSharding {
 public:
  /// On the device where the array already lies, else on the default device.
  SingleDeviceSharding(MemoryKind kind = MemoryKind::kDevice) : kind_(kind) {}  // NOLINT
  /// By name: "device", "pinned_host" or "disk"; "" is the default, the device.
  /// Errors: TraceError that lists the valid names.
  explicit SingleDeviceSharding(std::string_view kind) : kind_(memory_kind_of(kind)) {}
  /// On that device. Errors: as above.
  explicit SingleDeviceSharding(DevicePtr device, std::string_view memory_kind = "")
      : device_(std::move(device)), kind_(memory_kind_of(memory_kind)) {}

  const DevicePtr& device() const { return device_; }  ///< Null: the device where the array lies.
  MemoryKind memory_kind() const { return kind_; }     ///< The kind of memory.
  /// The same placement in another memory. Errors: as the constructor.
  SingleDeviceSharding with_memory_kind(std::string_view memory_kind) const {
    return SingleDeviceSharding(device_, memory_kind);
  }
  /// Compares all fields.
  friend bool operator==(const SingleDeviceSharding&, const SingleDeviceSharding&) = default;

 private:
  DevicePtr device_;
  MemoryKind kind_;
};

/// An array cut over the devices of a mesh.
class NamedSharding {
 public:
  /// Errors: TraceError if the specification names an axis that the mesh lacks, or one twice; for
  /// an unknown memory kind, with a list of the valid ones.
  NamedSharding(sharding::Mesh mesh, PartitionSpec spec, std::string_view memory_kind = "");

  const sharding::Mesh& mesh() const { return mesh_; }           ///< The mesh of devices.
  const PartitionSpec& spec() const { return spec_; }  ///< The mesh axes that cut each array axis.
  MemoryKind memory_kind() const { return kind_; }     ///< The kind of memory of the devices.
  /// The same placement in another memory. Errors: as the constructor.
  NamedSharding with_memory_kind(std::string_view memory_kind) const {
    return NamedSharding(mesh_, spec_, memory_kind);
  }
  /// The number of parts into which each axis of an array of that rank is cut, by axis.
  /// Errors: TraceError if the specification has more entries than the array has axes.
  Dims parts(int rank) const;
  /// The tiles of an array of that shape. Errors: TraceError as check_sharding().
  Tiling tiling(const Shape& shape) const;
  /// The number of the tile that the device at a position of the mesh holds.
  int64_t tile_at(int64_t position) const;
  /// The number of lower positions that hold the same tile.
  int64_t replica_at(int64_t position) const;
  friend bool operator==(const NamedSharding&, const NamedSharding&) = default;  ///< All.

 private:
  std::vector<int> axes_of(const PartitionSpec::Axes& entry) const;

  sharding::Mesh mesh_;
  PartitionSpec spec_;
  MemoryKind kind_;
};

/// Any sharding; functions take this type. A MemoryKind converts to a SingleDeviceSharding of that
/// kind.
class Sharding {
 public:
  Sharding(SingleDeviceSharding sharding = {}) : of_(std::move(sharding)) {}  // NOLINT
  Sharding(NamedSharding sharding) : of_(std::move(sharding)) {}  // NOLINT
  Sharding(MemoryKind kind) : of_(SingleDeviceSharding(kind)) {}  // NOLINT

  MemoryKind memory_kind() const;  ///< The kind of memory.
  /// The device; null if the sharding names none or several.
  DevicePtr device() const;
  /// All devices; empty if the sharding names none, so that an array stays where it lies.
  std::vector<DevicePtr> devices() const;
  /// The NamedSharding; null if it is a SingleDeviceSharding.
  const NamedSharding* named() const { return std::get_if<NamedSharding>(&of_); }
  /// The same placement in another memory. Errors: TraceError that lists the valid names.
  Sharding with_memory_kind(std::string_view memory_kind) const;
  /// True if both place arrays of that rank alike: the same part on each device, in the same memory
  /// kind.
  bool is_equivalent_to(const Sharding& other, int rank) const;
  friend bool operator==(const Sharding&, const Sharding&) = default;  ///< All.

 private:
  std::variant<SingleDeviceSharding, NamedSharding> of_;
};
/// "SingleDeviceSharding(pinned_host)", "NamedSharding(Mesh('x': 1), P('x'), device)".
std::string to_string(const Sharding& sharding);

/// Throws TraceError "[what] …" if an array of that type cannot have this sharding: the
/// specification has more entries than the array has axes, or an extent is not divisible by the
/// extents of its mesh axes; the message then gives the nearest sizes that are divisible.
void check_sharding(std::string_view what, const Sharding& sharding, const ArrayType& type);

/// Shardings of the leaves of a tree: one for all leaves, or one for each path. A path names a
/// leaf, a subtree ("1/moments"; it may have no leaves, as the state of plain SGD) or, if empty,
/// the whole tree. The longest path that matches a leaf decides. A leaf that no path matches keeps
/// its sharding.
class ShardingsByPath {
 public:
  ShardingsByPath() = default;  ///< No path: every leaf keeps its sharding.
  template <typename S>
  requires(std::convertible_to<const S&, Sharding>)
  ShardingsByPath(const S& all) : by_path_{{"", Sharding(all)}} {}  // NOLINT
  ShardingsByPath(std::initializer_list<std::pair<std::string, Sharding>> by_path)
      : by_path_(by_path) {}  ///< One sharding for each path.

  bool empty() const { return by_path_.empty(); }  ///< True if there is no path.
  /// The sharding of the leaf at `path`; null if no path matches.
  const Sharding* find(std::string_view path) const;
  /// A path given here that is not among `part_paths`, the paths of a tree's parts; none if all
  /// are.
  std::optional<std::string> unknown(const std::vector<std::string>& part_paths) const;

 private:
  std::vector<std::pair<std::string, Sharding>> by_path_;
};

}  // namespace stow
