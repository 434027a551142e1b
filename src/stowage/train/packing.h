// Packing: which examples share a row of a batch.
// Not their tokens (dataset_lines.h), nor the order of rows in training (dataset.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "stowage/base/inside.h"

namespace stow {

/// Rows of items: row r holds items[begin[r]] to items[begin[r + 1]], that end not included.
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

/// Items 0 to n - 1, one a row.
RowLayout one_item_a_row(int64_t n_items);
/// Fills rows in the order of the items: an item that does not fit begins the next row. Every size
/// is from 1 to `capacity`.
RowLayout pack_in_order(std::span<const int32_t> sizes, int64_t capacity);
/// Fills rows best-fit decreasing: from the largest item on, each goes into the fullest row that
/// has room for it; of items of one size the first comes first. Every size is from 1 to `capacity`.
/// Source: Johnson et al. 1974, SIAM J. Comput. 3(4).
RowLayout pack_tightly(std::span<const int32_t> sizes, int64_t capacity);

}  // namespace stow
