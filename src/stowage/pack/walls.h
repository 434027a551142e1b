// Buffers whose places are fixed, above a rising skyline: which of them it meets first.
// Not what is occupied below the skyline, and not the skyline itself (rise.h).
#pragma once

#include <cstdint>
#include <vector>

#include "stowage/pack/exact_search.h"

namespace stow::pack {

class Walls {
 public:
  static constexpr int64_t kFree = -1;

  explicit Walls(int32_t n_sections);

  /// `offsets` of all items, kFree where one is not fixed. Both are kept by reference.
  void build(const std::vector<Item>& items, const std::vector<int64_t>& offsets);
  void clear();

  /// The fixed item of the lowest offset that lives in any of the sections first..last and was not
  /// passed; -1 if there is none. O(log n).
  int32_t lowest(int32_t first, int32_t last) const;
  /// The skyline has reached it, and all that is fixed below.
  void pass(int32_t item);

 private:
  template <typename Fn>
  void each_node(int32_t first, int32_t last, Fn&& fn) const;
  int32_t head(int32_t v) const { return lists_[v].empty() ? -1 : lists_[v].back(); }
  int32_t lower(int32_t a, int32_t b) const;

  int32_t leaves_ = 1;
  const std::vector<Item>* items_ = nullptr;
  const std::vector<int64_t>* offsets_ = nullptr;
  std::vector<std::vector<int32_t>> lists_;  // Items that cover a node, not its parent; falling.
  std::vector<int32_t> below_;               // The lowest of a node and its descendants.
};

}  // namespace stow::pack
