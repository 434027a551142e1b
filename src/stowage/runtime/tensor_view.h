// TensorView: bytes at an address seen as a strided array. It owns nothing.
// Not a plan-time view; that is ir/schedule.h's View.
#pragma once

#include <cstddef>

#include "stowage/core/array_type.h"

namespace stow {

struct TensorView {
  std::byte* data = nullptr;
  DType dtype = DType::kF32;
  Dims dims;
  Dims strides;  ///< In elements.

  int64_t elems() const {
    int64_t n = 1;
    for (int64_t d : dims) n *= d;
    return n;
  }
};

}  // namespace stow
