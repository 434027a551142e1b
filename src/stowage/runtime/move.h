// move: copies one strided window of elements to another, between any two memory kinds.
// Not a conversion; both sides have the same dtype and dims.
#pragma once

#include <span>

#include "stowage/base/inside.h"
#include "stowage/core/dtype.h"
#include "stowage/core/shape.h"
#include "stowage/runtime/place.h"
#include "stowage/runtime/target.h"

namespace stow {

/// The shape of a move. Strides are in elements; only strides of the source may be 0.
struct MoveShape {
  DType dtype = DType::kF32;
  Dims dims;
  Dims from_strides, to_strides;
};

/// Copies all elements. The two sides are the same bytes or do not overlap. Thread-safe if no two
/// moves write the same bytes. `bounce`: memory for a move from or to a disk; it begins on a block
/// and has at least two blocks; disk_bounce_bytes() is the best size. Moves between memories go
/// through `target` and use `threads` threads.
/// Errors: DiskError.
void move(const Place& from, const Place& to, const MoveShape& shape, std::span<std::byte> bounce,
          const Target& target, int threads);

}  // namespace stow
