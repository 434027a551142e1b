// FixedBuffers: buffers at fixed offsets above the skyline of a SkylinePass; finds the lowest one.
// Not the bytes below the skyline, and not the skyline itself (skyline_pass.h).
#pragma once

#include <cstdint>
#include <vector>

#include "stowage/pack/exact_search.h"

namespace stow::pack {

/// An index of fixed buffers by section and offset: a segment tree over sections.
class FixedBuffers {
 public:
  static constexpr int64_t kFree = -1;

  explicit FixedBuffers(int32_t n_sections);

  /// Builds the index. `offsets`: those of all items; kFree for items that are not fixed. Both
  /// arguments are kept by reference.
  void build(const std::vector<Item>& items, const std::vector<int64_t>& offsets);
  void clear();

  /// Returns the item with the lowest offset among the fixed items that are live in any of the
  /// sections first..last and were not passed; -1 if there is none. O(log n).
  int32_t lowest(int32_t first, int32_t last) const;
  /// Removes an item that the skyline has reached. Lower fixed items of its sections must have been
  /// passed before.
  void pass(int32_t item);

 private:
  template <typename Fn>
  void each_node(int32_t first, int32_t last, Fn&& fn) const;
  int32_t head(int32_t v) const { return lists_[v].empty() ? -1 : lists_[v].back(); }
  int32_t lower(int32_t a, int32_t b) const;

  int32_t leaves_ = 1;
  const std::vector<Item>* items_ = nullptr;
  const std::vector<int64_t>* offsets_ = nullptr;
  // By node: items that cover it, but not its whole parent, by decreasing offset.
  std::vector<std::vector<int32_t>> lists_;
  std::vector<int32_t> below_;  // By node: the lowest item of it and its descendants.
};

}  // namespace stow::pack
