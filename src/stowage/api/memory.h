// device_put and sharding_of: the placement of arrays in memory kinds and over devices.
// Not the shardings; sharding.h has them.
#pragma once

#include <span>

#include "stowage/api/sharding.h"
#include "stowage/api/tree.h"

namespace stow {

/// Options for placing values over the devices of several processes.
struct PlacementOptions {
  /// Compares digests of the values between processes before memory is allocated: 16 bytes an
  /// array.
  bool check_same = true;
};

/// Returns x placed as `to` says: x itself if it already lies there, else a copy. Takes concrete,
/// traced and abstract arrays of any shape, and C++ scalars. The cotangent moves the other way: a
/// gradient lies where its parameter lies.
/// Meshes: each device gets its part. With several processes, each calls it with its own copy of
///         the value, and no data crosses between them. An array over a mesh can be put under any
///         sharding over the same devices; parts that a process lacks come piece by piece from
///         others.
/// Errors: TraceError if the array cannot be cut so; while tracing, for several devices or one that
///         is not the default; for a value that differs between processes; for an array that was
///         put on one device explicitly and is to lie on devices of other processes. CapacityError
///         when it runs, if it does not fit.
Array device_put(const Operand& x, const Sharding& to, const PlacementOptions& options = {});
/// Moves x to another memory kind; the rest of its sharding is kept.
Array device_put(const Operand& x, MemoryKind kind);
/// For the library: device_put of `n` elements at `data`.
Array device_put_bytes(const void* data, int64_t n, DType data_dtype, Shape shape, DType dtype,
                       const Sharding& to, SourceLocation at);
/// For the library: device_put of the leaves of a tree.
std::vector<Array> device_put_leaves(const TreeRef& tree, const Sharding& to,
                                     const PlacementOptions& options, SourceLocation at);
/// Returns an array of the elements of `data`, row-major, converted to `dtype` and written directly
/// to where `to` says. A write to disk goes piece by piece through up to 1.5 MiB of the device's
/// pinned_host memory. Errors: as above; TraceError if the sizes differ; DiskError.
template <concepts::Scalar T>
Array device_put(std::span<const T> data, Shape shape, const Sharding& to,
                 DType dtype = dtype_of<T>(), STOW_AT) {
  return device_put_bytes(data.data(), static_cast<int64_t>(data.size()), dtype_of<T>(),
                          std::move(shape), dtype, to, at);
}
/// device_put for every leaf of a tree. All leaves are compared between processes at once, before
/// the first is placed; a message names the leaf.
template <typename T>
requires(!std::convertible_to<const T&, Operand> && is_tree<T>()) T
    device_put(const T& tree, const Sharding& to, const PlacementOptions& options = {}, STOW_AT) {
  return tree_unflatten(tree, device_put_leaves(tree_ref(tree), to, options, at));
}
/// The sharding of an array: the one that device_put or out_shardings gave it; else the whole array
/// on its device, in the memory kind of its type. Results of other operations have no mesh.
/// Errors: TraceError for an empty array.
Sharding sharding_of(const Array& x);

}  // namespace stow
