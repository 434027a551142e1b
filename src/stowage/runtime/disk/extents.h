// DiskExtents: the free ranges of a disk's file, allocated first fit.
// Not thread-safe (the owning Disk locks), and it makes no system calls.
#pragma once

#include <cstdint>
#include <map>

#include "stowage/core/disk_blocks.h"

namespace stow {

/// Ranges begin and end on blocks (kDiskBlockBytes).
class DiskExtents {
 public:
  /// Allocates the lowest free range of at least `bytes` > 0 and returns its offset. If no free
  /// range is large enough, the range ends beyond the current end().
  int64_t allocate(int64_t bytes);
  /// Frees the range that allocate(bytes) returned as `offset`.
  void release(int64_t offset, int64_t bytes);
  /// Returns the end of the last allocated range.
  int64_t end() const { return end_; }

 private:
  std::map<int64_t, int64_t> free_;  // begin -> end, none adjacent, none at end_
  int64_t end_ = 0;
};

}  // namespace stow
