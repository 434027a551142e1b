// Place: where bytes begin, in memory or on a disk. It owns nothing.
// Not a window; that takes dims and strides too (move.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace stow {

class Disk;

struct Place {
  std::byte* memory = nullptr;  ///< Where `disk` is null.
  Disk* disk = nullptr;
  int64_t offset = 0;  ///< On the disk.

  /// The place so many bytes further on.
  Place plus(int64_t bytes) const {
    return disk ? Place{nullptr, disk, offset + bytes} : Place{memory + bytes, nullptr, 0};
  }
};

}  // namespace stow
