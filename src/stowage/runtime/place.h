// Place: where bytes begin, in memory or on a disk. It owns nothing.
// Not a window; that takes dims and strides too (move.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace stow::runtime {

class Disk;

struct Place {
  std::byte* memory = nullptr;  ///< Null if `disk` is not.
  Disk* disk = nullptr;
  int64_t offset = 0;  ///< On the disk.

  /// The place so many bytes further on.
  Place plus(int64_t bytes) const {
    if (disk) return {nullptr, disk, offset + bytes};
    return {memory ? memory + bytes : nullptr, nullptr, 0};  // null where there are no elements
  }
};

}  // namespace stow::runtime
