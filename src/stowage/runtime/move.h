// move: one strided window of elements to another, whatever memory each lies in.
// Not a conversion; both sides have the same elements.
#pragma once

#include <span>

#include "stowage/base/inside.h"
#include "stowage/core/dtype.h"
#include "stowage/core/shape.h"
#include "stowage/runtime/place.h"
#include "stowage/runtime/target.h"

namespace stow {

/// The shape of a move; strides in elements, 0 only in the source.
struct MoveShape {
  DType dtype = DType::kF32;
  Dims dims;
  Dims from_strides, to_strides;
};

/// Copies element by element. The sides do not overlap, or are the same. Thread-safe where no two
/// moves write the same bytes. `bounce`: where a side lies on a disk, memory on a block, two blocks
/// at least (core/disk_blocks.h says how much serves best). The target copies within memory, `threads`
/// sharing the work.
/// Errors: DiskError.
void move(const Place& from, const Place& to, const MoveShape& shape, std::span<std::byte> bounce,
          const Target& target, int threads);

}  // namespace stow
