// move_window: cuts a strided window into blocks and moves them through a flight and a bounce.
// Not thread-safe; the disk gives each direction to one caller at a time.
#pragma once

#include <span>

#include "stowage/runtime/disk/disk.h"
#include "stowage/runtime/disk/flight.h"

namespace stow {

/// Moves the window between disk and memory. What lies on blocks (of `block_bytes`, a power of two)
/// in both and is contiguous is moved as it is. Else the blocks around it are moved through
/// `bounce`, which begins on a block and has at least one; near elements share a piece, holes
/// between them included. What a write changes in part is read first.
/// Errors: DiskError.
void move_window(Flight& flight, bool write, const DiskWindow& window, std::span<std::byte> bounce,
                 int64_t block_bytes);

}  // namespace stow
