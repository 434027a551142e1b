#include "stowage/pack/fixed_buffers.h"

#include <algorithm>
#include <tuple>

namespace stow::pack {

FixedBuffers::FixedBuffers(int32_t n_sections) {
  while (leaves_ < n_sections) leaves_ *= 2;
  lists_.resize(2 * static_cast<size_t>(leaves_));
  below_.assign(2 * static_cast<size_t>(leaves_), -1);
}

template <typename Fn>
void FixedBuffers::each_node(int32_t first, int32_t last, Fn&& fn) const {
  for (int32_t l = first + leaves_, r = last + leaves_ + 1; l < r; l /= 2, r /= 2) {
    if (l % 2 == 1) fn(l++);
    if (r % 2 == 1) fn(--r);
  }
}

int32_t FixedBuffers::lower(int32_t a, int32_t b) const {
  if (a < 0 || b < 0) return std::max(a, b);
  return (*offsets_)[b] < (*offsets_)[a] ? b : a;
}

void FixedBuffers::clear() {
  for (auto& list : lists_) list.clear();
  below_.assign(below_.size(), -1);
}

void FixedBuffers::build(const std::vector<Item>& items, const std::vector<int64_t>& offsets) {
  clear();
  items_ = &items;
  offsets_ = &offsets;
  std::vector<int32_t> order;
  for (int32_t i = 0; i < static_cast<int32_t>(items.size()); ++i)
    if (offsets[i] != kFree) order.push_back(i);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return std::tuple(offsets[b], b) < std::tuple(offsets[a], a);
  });
  for (const int32_t i : order)
    each_node(items[i].first, items[i].last, [&](int32_t v) { lists_[v].push_back(i); });
  for (int32_t v = 2 * leaves_ - 1; v > 0; --v) {
    below_[v] = head(v);
    if (v < leaves_) below_[v] = lower(below_[v], lower(below_[2 * v], below_[2 * v + 1]));
  }
}

int32_t FixedBuffers::lowest(int32_t first, int32_t last) const {
  int32_t best = -1;
  each_node(first, last, [&](int32_t v) { best = lower(best, below_[v]); });
  // A buffer that covers more than one of these nodes may be listed at an ancestor.
  for (int32_t a = (first + leaves_) / 2, b = (last + leaves_) / 2; a > 0; a /= 2, b /= 2) {
    best = lower(best, head(a));
    if (a != b) best = lower(best, head(b));
  }
  return best;
}

void FixedBuffers::pass(int32_t item) {
  const Item& it = (*items_)[item];
  const auto pull = [&](int32_t v) {
    below_[v] = head(v);
    if (v < leaves_) below_[v] = lower(below_[v], lower(below_[2 * v], below_[2 * v + 1]));
  };
  each_node(it.first, it.last, [&](int32_t v) {
    lists_[v].pop_back();
    pull(v);
  });
  for (int32_t a = (it.first + leaves_) / 2, b = (it.last + leaves_) / 2; a > 0; a /= 2, b /= 2) {
    pull(a);
    if (a != b) pull(b);
  }
}

}  // namespace stow::pack
