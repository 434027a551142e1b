// device_put and the sharding of an array: memory kinds in the user's hands.
// Not what a sharding is; that is sharding.h.
#pragma once

#include <span>

#include "stowage/api/sharding.h"
#include "stowage/api/tree.h"

namespace stow {

/// How device_put places values that each of several processes has.
struct PlacementOptions {
  /// Compares digests of the values between processes before memory is taken: 16 bytes an array.
  bool check_same = true;
};

/// x in that place: x itself, and no copy, where it lies there already, else a copy. Works on
/// concrete, traced and abstract arrays of any shape, C++ scalars included. The cotangent goes the
/// other way: a gradient lies where its parameter lies.
/// Meshes: each device gets its part. Over several processes every one calls it with its own copy of
///         the value, and no copy crosses between them; an array over a mesh goes to any sharding
///         over the same devices, parts that a process has not piece by piece.
/// Errors: TraceError where the array cannot be cut so; while tracing, for another device than the
///         default one or several; for a value that is not the same on each process; for an array put on
///         one device by name and asked for on devices of other processes. CapacityError where it does
///         not fit (when it runs).
Array device_put(const Operand& x, const Sharding& to, const PlacementOptions& options = {});
/// Into another memory of where it lies, the rest of its sharding kept.
Array device_put(const Operand& x, MemoryKind kind);
/// For the library: what device_put of a span does.
Array device_put_bytes(const void* data, int64_t n, DType data_dtype, Shape shape, DType dtype,
                       const Sharding& to, SourceLocation at);
std::vector<Array> device_put_leaves(const TreeRef& tree, const Sharding& to,
                                     const PlacementOptions& options, SourceLocation at);
/// The elements of `data`, row-major, written straight to that place; `dtype` converts on the way.
/// To a disk they go in pieces, through up to 1.5 MiB of the device's pinned_host memory.
/// Errors: as above, and TraceError if the sizes differ; DiskError.
template <concepts::Scalar T>
Array device_put(std::span<const T> data, Shape shape, const Sharding& to,
                 DType dtype = dtype_of<T>(), STOW_AT) {
  return device_put_bytes(data.data(), static_cast<int64_t>(data.size()), dtype_of<T>(),
                          std::move(shape), dtype, to, at);
}
/// The same for every leaf of a tree. All leaves are compared between processes at once, before the
/// first is placed; a message names the leaf.
template <typename T>
requires(!std::convertible_to<const T&, Operand> && is_tree<T>()) T
    device_put(const T& tree, const Sharding& to, const PlacementOptions& options = {}, STOW_AT) {
  return tree_unflatten(tree, device_put_leaves(tree_ref(tree), to, options, at));
}
/// The sharding of an array: as it was put, or else whole on its device in the memory of its type.
/// An operation's result remembers no mesh; a move, and what out_shardings says, does.
/// Errors: TraceError on an empty one.
Sharding sharding_of(const Array& x);

}  // namespace stow
