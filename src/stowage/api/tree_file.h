// save_tree, load_tree: trees of arrays as safetensors files, each leaf a tensor by its path.
// Not checkpoints of a training run; those are io/checkpoint_file.h's.
#pragma once

#include <functional>
#include <string>

#include "stowage/api/tree.h"
#include "stowage/base/result.h"

namespace stow {

struct TreeFileOptions {
  /// Stands before each path and a slash: "model" gives "model/layers/0/w1".
  std::string prefix = {};
  /// The name of the tensor of a path, prefix included; none: the path itself.
  std::function<std::string(const std::string& path)> name = {};
  /// Loading: true ignores tensors of the file that are no leaf's; false makes them an error. Tensors
  /// that do not begin with `prefix` are ignored anyway, unless `name` is set.
  bool allow_surplus = false;
};

base::Result<void> save_leaves(const std::string& file, const TreeRef& tree,
                         const TreeFileOptions& options);
base::Result<std::vector<Array>> load_leaves(const std::string& file, const TreeRef& like,
                                       const TreeFileOptions& options);

/// Writes the leaves of `tree` to a safetensors file, wherever they lie, piece by piece. The file is
/// there whole or not at all: what stood there before stays until the last byte is on the disk. Arrays
/// over a mesh are written whole; each process that calls it writes the file.
/// Errors: the system's, as "FILE: reason"; a leaf that is traced, abstract, donated or empty, or parts of
///         which lie in other processes alone; two
///         leaves of one name, or a lone Array, whose path is empty, without a prefix.
template <concepts::Tree T>
base::Result<void> save_tree(const std::string& file, const T& tree, const TreeFileOptions& options = {}) {
  return save_leaves(file, tree_ref(tree), options);
}

/// A tree like `like` with the values of a file. Each leaf has the type of that of `like`, which may
/// be abstract, and lies in its memory, on its device or the default one. Of a leaf over a mesh
/// (device_put of an abstract array says so, too) the ranges that this process holds are read alone.
/// Errors: "FILE: reason" for a file that is missing or no safetensors file; tensors that are missing,
///         surplus or of another dtype or shape than their leaf, all of them by name; a byte that is
///         no bool. CapacityError where the device is full.
template <concepts::Tree T>
base::Result<T> load_tree(const std::string& file, const T& like, const TreeFileOptions& options = {}) {
  const base::Result<std::vector<Array>> leaves = load_leaves(file, tree_ref(like), options);
  if (!leaves) return leaves.failure();
  return tree_unflatten(like, *leaves);
}

}  // namespace stow
