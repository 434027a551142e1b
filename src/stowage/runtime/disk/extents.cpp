#include "stowage/runtime/disk/extents.h"

#include <algorithm>

#include "stowage/base/error.h"

namespace stow {

int64_t DiskExtents::allocate(int64_t bytes) {
  STOW_CHECK(bytes > 0);
  const int64_t size = align_up(bytes, kDiskBlockBytes);
  const auto fits = [&](const auto& range) { return range.second - range.first >= size; };
  const auto found = std::find_if(free_.begin(), free_.end(), fits);
  if (found == free_.end()) {
    end_ += size;
    return end_ - size;
  }
  const auto [begin, end] = *found;
  free_.erase(found);
  if (end - begin > size) free_.emplace(begin + size, end);
  return begin;
}

void DiskExtents::release(int64_t offset, int64_t bytes) {
  int64_t begin = offset, end = offset + align_up(bytes, kDiskBlockBytes);
  auto next = free_.lower_bound(begin);
  STOW_CHECK(end <= end_ && (next == free_.end() || end <= next->first), "given back twice");
  if (next != free_.end() && next->first == end) {
    end = next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin())
    if (const auto before = std::prev(next); before->second >= begin) {
      STOW_CHECK(before->second == begin, "given back twice");
      begin = before->first;
      free_.erase(before);
    }
  if (end == end_)
    end_ = begin;
  else
    free_.emplace(begin, end);
}

}  // namespace stow
