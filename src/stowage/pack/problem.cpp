#include "stowage/pack/problem.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace stow::pack {
namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 62;
constexpr int64_t kMaxAlignment = int64_t{1} << 40;

bool empty(const Rect& r) {
  return r.size == 0 || r.lower == r.upper;
}

}  // namespace

Result<void> check_problem(const Problem& problem) {
  int64_t total = 0;
  for (size_t b = 0; b < problem.buffers.size(); ++b) {
    const Buffer& buffer = problem.buffers[b];
    if (buffer.alignment < 1 || buffer.alignment > kMaxAlignment ||
        !std::has_single_bit(static_cast<uint64_t>(buffer.alignment)))
      return fail("buffer {}: expected an alignment that is a power of two up to 2^40, got {}", b,
                  buffer.alignment);
    int64_t extent = 0;
    for (const Rect& r : buffer.rects) {
      if (r.offset < 0 || r.size < 0)
        return fail("buffer {}: negative offset {} or size {}", b, r.offset, r.size);
      if (r.lower > r.upper)
        return fail("buffer {}: lower {} lies after upper {}", b, r.lower, r.upper);
      if (r.offset > kMaxBytes || r.size > kMaxBytes - r.offset)
        return fail("buffer {}: it ends beyond 2^62 bytes", b);
      extent = std::max(extent, r.offset + r.size);
    }
    if (extent > kMaxBytes - buffer.alignment || total > kMaxBytes - buffer.alignment - extent)
      return fail("buffer {}: the buffers up to it are larger than 2^62 bytes", b);
    total += extent + buffer.alignment;
    if (buffer.rects.size() < 2) continue;
    const Problem alone{{buffer}};
    if (!validate(alone, {{0}, height_of(alone, {0})}))
      return fail("buffer {}: two of its rectangles share time and bytes", b);
  }
  return {};
}

int64_t lower_bound(const Problem& problem) {
  std::vector<std::pair<int64_t, int64_t>> changes;
  for (const Buffer& buffer : problem.buffers) {
    for (const Rect& r : buffer.rects) {
      if (empty(r)) continue;
      changes.emplace_back(r.lower, r.size);
      changes.emplace_back(r.upper, -r.size);
    }
  }
  std::sort(changes.begin(), changes.end());  // At one instant ends come before starts.
  int64_t live = 0, most = 0;
  for (const auto& [time, change] : changes) most = std::max(most, live += change);
  return most;
}

int64_t height_of(const Problem& problem, const std::vector<int64_t>& offsets) {
  int64_t height = 0;
  for (size_t b = 0; b < problem.buffers.size(); ++b)
    for (const Rect& r : problem.buffers[b].rects)
      if (!empty(r)) height = std::max(height, offsets[b] + r.offset + r.size);
  return height;
}

}  // namespace stow::pack
