// One greedy pass: places buffers in a given order, each by first fit or best fit.
// Not a choice of orders, nor a search over them (heuristics.h).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "stowage/pack/occupancy.h"
#include "stowage/pack/problem.h"
#include "stowage/pack/sections.h"

namespace stow::pack {

enum class Fit {
  kFirst,  // The lowest free offset.
  kBest,   // The free offset with the least slack above the buffer; the lowest of equal ones.
};

/// Places buffers greedily. Reused for many orders of one problem.
class Placer {
 public:
  /// Both must outlive the placer.
  Placer(const Problem& problem, const Sections& sections);

  /// Places the buffers of `order`. Ends early at the first buffer that would end above `limit`, or
  /// if `stop`, called from time to time, returns true. Returns the number of buffers placed, which
  /// is order.size() on success.
  size_t run(const std::vector<int32_t>& order, Fit fit, int64_t limit,
             const std::function<bool()>& stop = {});

  const std::vector<int64_t>& offsets() const { return offsets_; }  // Offsets of the last run.
  int64_t height() const { return height_; }                        // Height of the buffers placed.
  int64_t extent(int32_t buffer) const { return extents_[buffer]; }  // Highest end of a rectangle.
  /// Steps over nodes and intervals in all runs; the unit of budgets of work.
  int64_t work() const { return work_; }

 private:
  // The rest of a list of occupied bytes that one rectangle must not overlap.
  struct Cursor {
    const Interval* next;
    const Interval* end;
    int64_t offset, size;
  };

  int64_t lowest_from(int64_t base, int64_t alignment);
  int64_t slack_above(int64_t base) const;
  int64_t find(int32_t buffer, Fit fit, int64_t limit);

  const Problem& problem_;
  const Sections& sections_;
  Occupancy occupancy_;
  std::vector<int64_t> extents_, offsets_;
  std::vector<Cursor> cursors_;
  int64_t height_ = 0;
  int64_t work_ = 0;
};

}  // namespace stow::pack
