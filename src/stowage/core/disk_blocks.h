// Block size, alignment and bounce memory that plans reserve for unbuffered disk access.
// Not the access itself; that is runtime/disk.
#pragma once

#include <algorithm>
#include <cstdint>

#include "stowage/base/bytes.h"

namespace stow {

/// Transfers that bypass the page cache begin and end on multiples of this size, in the file and in
/// memory.
inline constexpr int64_t kDiskBlockBytes = 4096;
/// Largest bounce memory of a move. It holds enough pieces for the disk to be busy while other
/// pieces are copied.
inline constexpr int64_t kDiskBounceBytes = 512 << 10;

/// Returns the size of the block-aligned bounce memory for a move of `moved_bytes` to or from a
/// disk: at least two blocks, which suffice if only unaligned ends of spans are bounced, and at
/// most kDiskBounceBytes.
constexpr int64_t disk_bounce_bytes(int64_t moved_bytes) {
  // An unaligned span overlaps one block more than it fills.
  return std::clamp(align_up(moved_bytes, kDiskBlockBytes) + kDiskBlockBytes, 2 * kDiskBlockBytes,
                    kDiskBounceBytes);
}

/// Returns the preferred alignment of a range of memory outside of the device. Ranges of at least
/// 16 blocks and ranges of whole blocks are aligned to a block, so that moves need no bounce
/// memory.
constexpr int64_t disk_alignment(int64_t bytes) {
  return bytes >= 16 * kDiskBlockBytes || (bytes > 0 && bytes % kDiskBlockBytes == 0)
             ? kDiskBlockBytes
             : 64;
}

}  // namespace stow
