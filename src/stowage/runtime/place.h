// Place: where bytes begin, in memory or on a disk. It owns nothing.
// Not a window; that takes dims and strides too (move.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace stow::runtime {

class Disk;

struct Place {
  std::byte* memory = nullptr;  ///< Address; null if `disk` is set.
  Disk* disk = nullptr;         ///< Null for a place in memory.
  int64_t offset = 0;           ///< Offset on the disk.

  /// Returns the place `bytes` after this one.
  Place plus(int64_t bytes) const {
    if (disk) return {nullptr, disk, offset + bytes};
    return {memory ? memory + bytes : nullptr, nullptr, 0};  // null for an empty buffer
  }
};

}  // namespace stow::runtime
