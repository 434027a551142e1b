// save_tree, load_tree: trees of arrays as safetensors files, with a tensor for each leaf.
// Not checkpoints of a training run; see io/checkpoint_file.h.
#pragma once

#include <functional>
#include <string>

#include "stowage/api/tree.h"
#include "stowage/base/result.h"

namespace stow {

struct TreeFileOptions {
  /// Precedes each path, with a slash: "model" gives "model/layers/0/w1".
  std::string prefix = {};
  /// Returns the tensor name of a leaf from its path with prefix. Empty: the name is that path.
  std::function<std::string(const std::string& path)> name = {};
  /// For loading. False: a tensor of the file without a leaf is an error. True: it is ignored.
  /// Tensors whose name does not begin with `prefix` are always ignored, unless `name` is set.
  bool allow_surplus = false;
};

base::Result<void> save_leaves(const std::string& file, const TreeRef& tree,
                         const TreeFileOptions& options);
base::Result<std::vector<Array>> load_leaves(const std::string& file, const TreeRef& like,
                                       const TreeFileOptions& options);

/// Writes the leaves of `tree`, in any memory kind, to a safetensors file, piece by piece. The file
/// is replaced atomically, after all bytes are on the disk. Arrays over a mesh are written whole;
/// each process that calls the function writes the file.
/// Errors: "FILE: reason" for errors of the system; a leaf that is traced, abstract, donated or
///         empty, or that has parts in other processes only; two leaves of one name; a tree that is
///         a single Array, whose path is empty, without a prefix.
template <concepts::Tree T>
base::Result<void> save_tree(const std::string& file, const T& tree,
                             const TreeFileOptions& options = {}) {
  return save_leaves(file, tree_ref(tree), options);
}

/// Returns a tree like `like` with the values of a file. Each leaf has the type, memory kind and
/// sharding of the leaf of `like`, which may be abstract; without a device, it is on the default
/// device. For a leaf over a mesh (see device_put of an abstract array), only the ranges that this
/// process holds are read.
/// Errors: "FILE: reason" for a file that is missing or no safetensors file; for tensors that are
///         missing, surplus or of another dtype or shape than their leaf, with all names; for a
///         bool whose byte is neither 0 nor 1. CapacityError if the device is full.
template <concepts::Tree T>
base::Result<T> load_tree(const std::string& file, const T& like,
                          const TreeFileOptions& options = {}) {
  const base::Result<std::vector<Array>> leaves = load_leaves(file, tree_ref(like), options);
  if (!leaves) return leaves.failure();
  return tree_unflatten(like, *leaves);
}

}  // namespace stow
