// Shares of a batch that are computed independently of each other, as a mesh cuts the batch.
// Not a mesh; the shares are the leading axis of an array here.
#pragma once

#include "stowage/api/shaping.h"
#include "stowage/api/tree.h"

namespace stow::nn {

/// Repeats every array of the tree along a new leading axis [parts].
template <concepts::Tree T>
T repeat_for_parts(const T& tree, int64_t parts) {
  return tree_map(
      [&](const Array& x) {
        Dims dims = x.shape().dims();
        dims.insert(dims.begin(), parts);
        return broadcast_to(x, Shape(dims));
      },
      tree);
}

/// Reshapes [parts * n, ..] to [parts, n, ..].
inline Array in_parts(const Array& x, int64_t parts) {
  Dims dims = x.shape().dims();
  dims[0] /= parts;
  dims.insert(dims.begin(), parts);
  return x.reshape(dims);
}

}  // namespace stow::nn
