// Reorder: a first-fit packing that is updated when its order changes.
// Not the choice of an order (orders.h, heuristics.h); not for problems with many overlaps, all of
// which it keeps (placer.h).
#pragma once

#include <cstdint>
#include <vector>

#include "stowage/pack/sections.h"

namespace stow::pack {

/// Returns the number of pairs of rectangles that share a section. O(n).
int64_t count_overlaps(const Sections& sections);

/// Keeps the overlaps of all buffers. When a buffer moves in the order, place() places only the
/// buffers again that this affects.
class Reorder {
 public:
  /// `sections` must outlive it. `alignments`: [buffers], powers of two. Finds all overlaps. Each
  /// pair of overlapping rectangles takes up to 40 bytes, and about 80 during construction.
  Reorder(const Sections& sections, std::vector<int64_t> alignments);

  /// Replaces the packing by an empty one with this order, which holds every buffer that has bytes.
  void start(std::vector<int32_t> order);

  /// Places buffers by first fit in the order: each gets the lowest offset at which it overlaps no
  /// earlier buffer. Ends at the first buffer whose end is above `limit`. Returns the number of
  /// buffers before that one; order().size() on success.
  size_t place(int64_t limit);

  /// Moves the buffer at position `from` forward, to just before the one at position `to`.
  void move(size_t from, size_t to);

  const std::vector<int32_t>& order() const { return order_; }
  /// Offsets in bytes, [buffers]. Valid after a place() that succeeded.
  std::vector<int64_t> offsets() const;
  int64_t height() const;
  /// Work so far, in steps of a few nanoseconds.
  int64_t work() const { return work_; }

 private:
  // The two buffers share bytes if low < base - (base of the other buffer) < high.
  struct Delta {
    int64_t low, high;
  };
  struct State {
    int64_t offset;  // -1 until the first place() after start().
    int32_t position;
    bool stale;  // True if an earlier buffer that overlaps it has moved since it was placed.
  };

  void find_overlaps();
  int64_t lowest(int32_t buffer);

  const Sections& sections_;
  const std::vector<int64_t> alignments_;
  std::vector<int64_t> extents_;
  std::vector<int64_t> begin_;  // [buffers + 1] the range of each buffer in the next two.
  std::vector<int32_t> others_;
  std::vector<Delta> deltas_;  // Empty if every buffer is one rectangle at offset 0.
  std::vector<int32_t> order_;
  std::vector<State> states_;  // [buffers]
  // Scratch of lowest(): a base of the buffer between low and high overlaps an earlier one.
  std::vector<int64_t> low_, high_;
  size_t first_stale_ = 0;    // No buffer before this position is stale,
  int64_t placed_limit_ = 0;  // and all of them end at or below this.
  int64_t work_ = 0;
};

}  // namespace stow::pack
