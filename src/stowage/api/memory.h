// device_put and the sharding of an array: memory kinds in the user's hands.
// Not what a sharding is; that is sharding.h.
#pragma once

#include <span>

#include "stowage/api/sharding.h"
#include "stowage/api/tree.h"

namespace stow {

/// x in that place: x itself, and no copy, where it lies there already, else a copy. Works on
/// concrete, traced and abstract arrays of any shape, C++ scalars included. The cotangent goes the
/// other way: a gradient lies where its parameter lies.
/// Errors: TraceError where the array cannot be cut so, and, while tracing, for another device than
/// the default one; CapacityError where it does not fit (when it runs).
Array device_put(const Operand& x, const Sharding& to);
/// Into another memory of where it lies, the rest of its sharding kept.
Array device_put(const Operand& x, MemoryKind kind);
/// For the library: what device_put of a span does.
Array device_put_bytes(const void* data, int64_t n, DType data_dtype, Shape shape, DType dtype,
                       const Sharding& to, SourceLocation at);
/// The elements of `data`, row-major, written straight to that place; `dtype` converts on the way.
/// To a disk they go in pieces, through up to 1.5 MiB of the device's pinned_host memory.
/// Errors: as above, and TraceError if the sizes differ; DiskError.
template <concepts::Scalar T>
Array device_put(std::span<const T> data, Shape shape, const Sharding& to,
                 DType dtype = dtype_of<T>(), STOW_AT) {
  return device_put_bytes(data.data(), static_cast<int64_t>(data.size()), dtype_of<T>(),
                          std::move(shape), dtype, to, at);
}
/// The same for every leaf of a tree.
template <typename T>
requires(!std::convertible_to<const T&, Operand> && is_tree<T>()) T
    device_put(const T& tree, const Sharding& to, STOW_AT) {
  std::vector<Array> leaves = tree_leaves(tree);
  for (Array& leaf : leaves) leaf = device_put(Operand(leaf, at.file, at.line), to);
  return tree_unflatten(tree, leaves);
}
/// Where an array lies: what it was put to, or else whole on its device in the memory of its type.
/// An operation's result remembers no mesh; a move, and what out_shardings says, does.
/// Errors: TraceError on an empty one.
Sharding sharding_of(const Array& x);

}  // namespace stow
