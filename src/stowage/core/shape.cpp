#include "stowage/core/shape.h"

#include <fmt/ranges.h>

namespace stow {

std::string to_string(const Shape& shape) {
  return fmt::format("{}", fmt::join(shape.dims(), ","));
}

Dims contiguous_strides(const Shape& shape) {
  Dims strides(shape.dims().size());
  int64_t stride = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[static_cast<size_t>(i)] = stride;
    stride *= shape[i];
  }
  return strides;
}

}  // namespace stow
