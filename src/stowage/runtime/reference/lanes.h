// for_each_lane: walks an array lane by lane along one axis, for the reference.
// Not for kernels.
#pragma once

#include "stowage/runtime/reference/element.h"

namespace stow::ref {

/// Returns `index` with `value` at `axis`.
inline Dims with(const Dims& index, int64_t axis, int64_t value) {
  Dims changed(index);
  changed[static_cast<size_t>(axis)] = value;
  return changed;
}

/// Calls f(index) for every lane along `axis`, `index` being that of the lane's first element.
/// Makes no call if another extent is 0.
template <typename F>
void for_each_lane(const Dims& dims, int64_t axis, F f) {
  for_each_index(with(dims, axis, 1), f);
}

}  // namespace stow::ref
