// DiskExtents: which ranges of a file are taken, first fit. It knows nothing of files.
// Not thread-safe; the disk that owns it locks.
#pragma once

#include <cstdint>
#include <map>

#include "stowage/core/disk_blocks.h"

namespace stow {

/// Ranges begin and end on blocks (kDiskBlockBytes).
class DiskExtents {
 public:
  /// The lowest free range of at least `bytes` > 0; the file grows where there is none.
  int64_t take(int64_t bytes);
  /// Gives back what was taken with the same `bytes`.
  void give(int64_t offset, int64_t bytes);
  /// The end of the last taken range.
  int64_t end() const { return end_; }

 private:
  std::map<int64_t, int64_t> free_;  // begin -> end, none adjacent, none at end_
  int64_t end_ = 0;
};

}  // namespace stow
