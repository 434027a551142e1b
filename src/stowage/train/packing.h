// Packing: the assignment of examples to rows of batches.
// Not the tokens (dataset_lines.h), nor the order of rows in training (dataset.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "stowage/base/inside.h"

namespace stow {

/// Rows of items: row r holds items [begin[r], begin[r + 1]) of `items`.
struct RowLayout {
  std::vector<int32_t> items;
  std::vector<int64_t> begin = {0};

  int64_t n_rows() const { return static_cast<int64_t>(begin.size()) - 1; }
  std::span<const int32_t> row(int64_t r) const {
    const auto first = static_cast<size_t>(begin[static_cast<size_t>(r)]);
    const auto last = static_cast<size_t>(begin[static_cast<size_t>(r) + 1]);
    return std::span(items).subspan(first, last - first);
  }
};

/// Returns rows of one item each, items 0 to n_items - 1.
RowLayout one_item_per_row(int64_t n_items);
/// Fills rows in the order of the items: an item that does not fit begins the next row. Sizes must
/// be from 1 to `capacity`.
RowLayout pack_in_order(std::span<const int32_t> sizes, int64_t capacity);
/// Fills rows by best-fit decreasing: from the largest item on, each goes into the fullest row that
/// has room for it. Items of equal size keep their order. Sizes must be from 1 to `capacity`.
/// Source: Johnson et al. 1974, SIAM J. Comput. 3(4).
RowLayout pack_tightly(std::span<const int32_t> sizes, int64_t capacity);

}  // namespace stow
