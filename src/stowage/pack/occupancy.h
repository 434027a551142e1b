// Occupied bytes by section: a segment tree whose nodes hold coalesced byte intervals.
// Not an interference graph: a query of a range of sections visits O(log sections) nodes.
#pragma once

#include <cstdint>
#include <vector>

namespace stow::pack {

/// A half-open range of bytes.
struct Interval {
  int64_t begin;
  int64_t end;
};

/// Sorted, disjoint intervals, with a gap between neighbours.
using IntervalList = std::vector<Interval>;

class Occupancy {
 public:
  explicit Occupancy(int32_t n_sections);

  /// Removes all bytes, in time proportional to the number of nodes that add() changed.
  void clear();

  /// Occupies `bytes` in the sections first..last (inclusive).
  void add(int32_t first, int32_t last, Interval bytes);

  /// Calls fn(list) with interval lists whose union is the bytes occupied in any of the sections
  /// first..last (inclusive). No list is empty. The lists stay valid until the next add() or
  /// clear().
  template <typename Fn>
  void lists(int32_t first, int32_t last, Fn&& fn) const {
    walk(
        first, last, [&](int32_t v) { report(nodes_[v].any, fn); },
        [&](int32_t v) { report(nodes_[v].spanning, fn); });
  }

 private:
  struct Node {
    IntervalList spanning;  // Bytes added over the whole node, but not over its whole parent.
    IntervalList any;       // Bytes added over the node or any part of it.
  };

  template <typename Fn>
  static void report(const IntervalList& list, Fn& fn) {
    if (!list.empty()) fn(list);
  }

  // Calls inside(v) for the O(log n) largest nodes within first..last, and across(v) for every node
  // that overlaps first..last and is not within it.
  template <typename Inside, typename Across>
  void walk(int32_t first, int32_t last, Inside&& inside, Across&& across) const {
    int32_t l = first + leaves_, r = last + leaves_;  // The range still to be covered.
    int32_t a = l, b = r, width = 1;                  // The ancestors of both ends.
    for (; a > 0; a >>= 1, b >>= 1, width <<= 1) {
      if (l <= r) {
        if (l & 1) inside(l++);
        if (l <= r && !(r & 1)) inside(r--);
        l >>= 1;
        r >>= 1;
      }
      if (!within(a, width, first, last)) across(a);
      if (a != b && !within(b, width, first, last)) across(b);
    }
  }

  bool within(int32_t v, int32_t width, int32_t first, int32_t last) const {
    return v * width - leaves_ >= first && (v + 1) * width - leaves_ <= last + 1;
  }

  int32_t leaves_ = 1;  // A power of two; nodes_[1] is the root.
  std::vector<Node> nodes_;
  std::vector<int32_t> touched_;
};

}  // namespace stow::pack
