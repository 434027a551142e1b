// Memory kinds in the user's hands: shardings that name one, and device_put.
// Not a mesh; an array lies whole on one device.
#pragma once

#include <string_view>

#include "stowage/api/tree.h"

namespace stow {

/// Where an array lies on one device: in which memory.
class SingleDeviceSharding {
 public:
  SingleDeviceSharding(MemoryKind kind = MemoryKind::kDevice) : kind_(kind) {}  // NOLINT: a kind is one
  /// By name: "device", "pinned_host" or "disk"; "" is the default, the device.
  /// Errors: TraceError that lists the valid names.
  explicit SingleDeviceSharding(std::string_view memory_kind);

  MemoryKind memory_kind() const { return kind_; }
  /// The same placement in another memory. Errors: as the constructor.
  SingleDeviceSharding with_memory_kind(std::string_view memory_kind) const {
    return SingleDeviceSharding(memory_kind);
  }
  friend bool operator==(const SingleDeviceSharding&, const SingleDeviceSharding&) = default;

 private:
  MemoryKind kind_;
};

/// x in that memory: x itself where it lies there already, else a copy. Works on concrete, traced
/// and abstract arrays of any shape, C++ scalars included. The cotangent goes the other way: a
/// gradient lies where its parameter lies.
/// Errors: CapacityError where it does not fit (when it runs).
Array device_put(const Operand& x, SingleDeviceSharding to);
/// The same for every leaf of a tree.
template <typename T>
requires(!std::convertible_to<const T&, Operand> && is_tree<T>()) T
    device_put(const T& tree, SingleDeviceSharding to, STOW_AT) {
  std::vector<Array> leaves = tree_leaves(tree);
  for (Array& leaf : leaves) leaf = device_put(Operand(leaf, at.file, at.line), to);
  return tree_unflatten(tree, leaves);
}
/// The sharding of an array. Errors: TraceError on an empty one.
SingleDeviceSharding sharding_of(const Array& x);

}  // namespace stow
