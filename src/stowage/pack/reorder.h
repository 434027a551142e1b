// A greedy packing that follows its order: where the order changes, only what that touches is
// placed anew.
// Not the choice of an order (orders.h, heuristics.h), and not for problems of too many overlaps
// (placer.h): it keeps them all.
#pragma once

#include <cstdint>
#include <vector>

#include "stowage/pack/sections.h"

namespace stow::pack {

/// Pairs of rectangles that share a section. O(n).
int64_t count_overlaps(const Sections& sections);

class Reorder {
 public:
  /// `sections` must outlive it; `alignments` ([buffers]) are powers of two. Takes 8 bytes, or 24
  /// where there are groups, for each two buffers that overlap, and time for each overlap.
  Reorder(const Sections& sections, std::vector<int64_t> alignments);

  /// Begins anew with this order of all buffers that have bytes.
  void start(std::vector<int32_t> order);

  /// Brings the packing in line with the order: each buffer lies at the lowest place above nothing
  /// that comes before it. Ends at the first that reaches above `limit`. Returns how many lie below
  /// it: order().size() on success.
  size_t place(int64_t limit);

  /// Moves the buffer at `from` forward, to just before the one at `to`.
  void move(size_t from, size_t to);

  const std::vector<int32_t>& order() const { return order_; }
  /// [buffers] Up to date after a place() that succeeded.
  std::vector<int64_t> offsets() const;
  int64_t height() const;
  int64_t work() const { return work_; }  // Steps of a few nanoseconds, in all.

 private:
  // Bases, relative to that of the other buffer, at which the two share bytes: those in between.
  struct Delta {
    int64_t low, high;
  };
  struct State {
    int64_t offset;  // -1 until the first place() after start().
    int32_t position;
    bool stale;  // Something before it, that it overlaps, has moved since it was placed.
  };

  void find_overlaps();
  int64_t lowest(int32_t buffer);

  const Sections& sections_;
  const std::vector<int64_t> alignments_;
  std::vector<int64_t> extents_;
  std::vector<int64_t> begin_;   // [buffers + 1] the entries of each in the next two.
  std::vector<int32_t> others_;
  std::vector<Delta> deltas_;    // Empty where all are plain.
  std::vector<int32_t> order_;
  std::vector<State> states_;  // [buffers]
  // Scratch of lowest(): bases of a buffer at which it would meet another lie between low and high.
  std::vector<int64_t> low_, high_;
  size_t first_stale_ = 0;     // No position before it is stale,
  int64_t placed_limit_ = 0;   // and all those end at or below this.
  int64_t work_ = 0;
};

}  // namespace stow::pack
