// The needs of unbuffered access to a disk in plans: blocks, and memory to bounce through.
// Not the disk; that is runtime/disk.
#pragma once

#include <algorithm>
#include <cstdint>

#include "stowage/base/bytes.h"

namespace stow {

/// Transfers that pass the page cache begin and end on multiples of this, in memory too.
inline constexpr int64_t kDiskBlockBytes = 4096;
/// Enough for pieces that keep a disk busy while others are copied.
inline constexpr int64_t kDiskBounceBytes = 512 << 10;

/// Bounce memory, on a block, that a move of so many bytes to or from a disk is given: what it can
/// use, up to kDiskBounceBytes. Two blocks are the least; they do where only the ends of spans take
/// that way.
constexpr int64_t disk_bounce_bytes(int64_t moved_bytes) {
  // A span of so many bytes touches one block more than it fills.
  return std::clamp(align_up(moved_bytes, kDiskBlockBytes) + kDiskBlockBytes, 2 * kDiskBlockBytes,
                    kDiskBounceBytes);
}

/// The best alignment of a range of memory outside of the device: large ones, and those of whole
/// blocks, on a block, so that they need no bounce.
constexpr int64_t disk_alignment(int64_t bytes) {
  return bytes >= 16 * kDiskBlockBytes || (bytes > 0 && bytes % kDiskBlockBytes == 0)
             ? kDiskBlockBytes
             : 64;
}

}  // namespace stow
