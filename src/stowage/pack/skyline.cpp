#include "stowage/base/inside.h"
#include "stowage/pack/skyline.h"

#include <algorithm>
#include <queue>
#include <tuple>

namespace stow::pack {
namespace {

// The top of what is placed in each section: the highest of a range, and raising a range to one
// height that is above all of it. A segment tree.
class Skyline {
 public:
  explicit Skyline(int32_t n_sections) {
    while (leaves_ < n_sections) leaves_ *= 2;
    nodes_.resize(static_cast<size_t>(leaves_) * 2);
  }

  int64_t highest(int32_t first, int32_t last) const {
    return highest(first, last, 1, 0, leaves_ - 1);
  }
  void raise(int32_t first, int32_t last, int64_t top) {
    raise(first, last, top, 1, 0, leaves_ - 1);
  }

 private:
  struct Node {
    int64_t highest = 0;
    bool flat = true;  // The whole node lies at `highest`; what is below it is out of date.
  };

  int64_t highest(int32_t first, int32_t last, int32_t v, int32_t l, int32_t r) const {
    if (nodes_[v].flat || (first <= l && r <= last)) return nodes_[v].highest;
    const int32_t middle = (l + r) / 2;
    int64_t top = 0;
    if (first <= middle) top = highest(first, last, 2 * v, l, middle);
    if (last > middle) top = std::max(top, highest(first, last, 2 * v + 1, middle + 1, r));
    return top;
  }

  void raise(int32_t first, int32_t last, int64_t top, int32_t v, int32_t l, int32_t r) {
    if (first <= l && r <= last) {
      nodes_[v] = {top, true};
      return;
    }
    if (nodes_[v].flat) nodes_[2 * v] = nodes_[2 * v + 1] = nodes_[v];
    nodes_[v].flat = false;
    const int32_t middle = (l + r) / 2;
    if (first <= middle) raise(first, last, top, 2 * v, l, middle);
    if (last > middle) raise(first, last, top, 2 * v + 1, middle + 1, r);
    nodes_[v].highest = std::max(nodes_[2 * v].highest, nodes_[2 * v + 1].highest);
  }

  int32_t leaves_ = 1;
  std::vector<Node> nodes_;
};

}  // namespace

std::vector<int32_t> skyline_order(const Sections& sections, const std::vector<double>& rank,
                                   int64_t limit, const std::function<bool()>& stop,
                                   int64_t* work) {
  Skyline skyline(sections.count());
  using Entry = std::tuple<int64_t, double, int32_t>;  // Base, -rank, buffer: the least is next.
  std::vector<Entry> entries;
  for (int32_t b = 0; b + 1 < static_cast<int32_t>(sections.begin.size()); ++b)
    if (sections.begin[b] != sections.begin[b + 1]) entries.emplace_back(0, -rank[b], b);
  const size_t n = entries.size();
  std::priority_queue queue(std::greater<Entry>(), std::move(entries));
  std::vector<int32_t> order;
  order.reserve(n);
  int64_t steps = 0, pops = 0;
  while (!queue.empty() && steps <= limit) {
    if (++pops % 4096 == 0 && stop && stop()) break;
    const auto [base, minus_rank, b] = queue.top();
    queue.pop();
    int64_t lowest = base;
    for (int32_t i = sections.begin[b]; i < sections.begin[b + 1]; ++i) {
      const SectionRect& r = sections.rects[i];
      lowest = std::max(lowest, skyline.highest(r.first, r.last) - r.offset);
      steps += 16;
    }
    if (lowest > base) {
      queue.emplace(lowest, minus_rank, b);
      continue;
    }
    for (int32_t i = sections.begin[b]; i < sections.begin[b + 1]; ++i) {
      const SectionRect& r = sections.rects[i];
      skyline.raise(r.first, r.last, base + r.offset + r.size);
    }
    order.push_back(b);
  }
  *work += steps;
  if (order.size() != n) order.clear();
  return order;
}

}  // namespace stow::pack
