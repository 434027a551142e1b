// Shares of a batch that are computed each by itself, as a mesh cuts it.
// Not a mesh; a share is a leading axis here.
#pragma once

#include "stowage/api/shaping.h"
#include "stowage/api/tree.h"

namespace stow::nn {

/// Every array of the tree with a leading axis [parts], of which each share has it whole.
template <concepts::Tree T>
T for_each_part(const T& tree, int64_t parts) {
  return tree_map(
      [&](const Array& x) {
        Dims dims = x.shape().dims();
        dims.insert(dims.begin(), parts);
        return broadcast_to(x, Shape(dims));
      },
      tree);
}

/// [parts * n, ..] as [parts, n, ..].
inline Array in_parts(const Array& x, int64_t parts) {
  Dims dims = x.shape().dims();
  dims[0] /= parts;
  dims.insert(dims.begin(), parts);
  return x.reshape(dims);
}

}  // namespace stow::nn
