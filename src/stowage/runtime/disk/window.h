// move_window: cuts a strided window into blocks and moves them through a queue and a bounce.
// Not thread-safe; the disk gives each direction to one caller at a time.
#pragma once

#include <span>

#include "stowage/runtime/disk/disk.h"
#include "stowage/runtime/disk/transfer_queue.h"

namespace stow {

/// Moves the window between disk and memory. `block_bytes`: the disk's block, a power of two.
/// Contiguous bytes that are block-aligned on both sides are moved directly. All others are moved
/// in whole blocks through `bounce`, which begins on a block and has at least one; elements near
/// each other share a piece, which includes the gaps between them. A write reads each block first
/// that it changes in part.
/// Errors: DiskError.
void move_window(TransferQueue& transfers, bool write, const DiskWindow& window,
                 std::span<std::byte> bounce, int64_t block_bytes);

}  // namespace stow
