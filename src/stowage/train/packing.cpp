#include "stowage/train/packing.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace stow {

RowLayout one_item_per_row(int64_t n_items) {
  RowLayout layout;
  layout.items.resize(static_cast<size_t>(n_items));
  std::iota(layout.items.begin(), layout.items.end(), 0);
  layout.begin.resize(static_cast<size_t>(n_items) + 1);
  std::iota(layout.begin.begin(), layout.begin.end(), int64_t{0});
  return layout;
}

RowLayout pack_in_order(std::span<const int32_t> sizes, int64_t capacity) {
  RowLayout layout;
  int64_t used = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (used > 0 && used + sizes[i] > capacity) {
      layout.begin.push_back(static_cast<int64_t>(i));
      used = 0;
    }
    used += sizes[i];
    layout.items.push_back(static_cast<int32_t>(i));
  }
  if (!sizes.empty()) layout.begin.push_back(static_cast<int64_t>(sizes.size()));
  return layout;
}

RowLayout pack_tightly(std::span<const int32_t> sizes, int64_t capacity) {
  std::vector<int32_t> by_size(sizes.size());
  std::iota(by_size.begin(), by_size.end(), 0);
  const auto size_of = [&](int32_t item) { return sizes[static_cast<size_t>(item)]; };
  std::stable_sort(by_size.begin(), by_size.end(),
                   [&](int32_t a, int32_t b) { return size_of(a) > size_of(b); });
  std::map<int64_t, std::vector<int32_t>> open;  // rows by the room left in them
  std::vector<int32_t> row_of(sizes.size());
  int32_t n_rows = 0;
  for (const int32_t item : by_size) {
    const int64_t size = size_of(item);
    int64_t room = capacity;
    int32_t row = n_rows;
    if (const auto fullest = open.lower_bound(size); fullest != open.end()) {
      room = fullest->first;
      row = fullest->second.back();
      fullest->second.pop_back();
      if (fullest->second.empty()) open.erase(fullest);
    } else {
      ++n_rows;
    }
    row_of[static_cast<size_t>(item)] = row;
    if (room > size) open[room - size].push_back(row);
  }
  RowLayout layout;
  layout.begin.assign(static_cast<size_t>(n_rows) + 1, 0);
  for (const int32_t row : row_of) ++layout.begin[static_cast<size_t>(row) + 1];
  std::partial_sum(layout.begin.begin(), layout.begin.end(), layout.begin.begin());
  std::vector<int64_t> next(layout.begin.begin(), layout.begin.end() - 1);
  layout.items.resize(sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i)
    layout.items[static_cast<size_t>(next[static_cast<size_t>(row_of[i])]++)] =
        static_cast<int32_t>(i);
  return layout;
}

}  // namespace stow
