// A sequence of units with the live bytes at each, in which a unit moves in O(log n).
// Not the choice of moves; passes/beam_order.cpp makes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "stowage/base/inside.h"

namespace stow {

/// Units 0 … n - 1 in an order. For each unit, `live` bytes are live before it runs, and it takes
/// `extra` bytes more while it runs; the peak is the largest sum of both. The representation is a
/// treap whose priorities are hashes, so the same calls give the same tree. Every call except the
/// constructor and order() takes O(log n).
class LiveSequence {
 public:
  /// `order` holds every unit once; `live` and `extra` are by unit.
  LiveSequence(const std::vector<int>& order, const std::vector<int64_t>& live,
               const std::vector<int64_t>& extra);

  bool is_before(int a, int b) const { return place(a) < place(b); }
  size_t place(int unit) const;  ///< The position of a unit: the number of units before it.
  int at(size_t place) const;    ///< The unit at a position.

  int64_t live(int unit) const;
  int64_t extra(int unit) const { return node(unit).extra; }
  int64_t peak() const;  ///< 0 without units.

  /// Adds to the live bytes of the units at places [begin, end).
  void add_live(size_t begin, size_t end, int64_t bytes);
  void set_live(int unit, int64_t bytes);
  void set_extra(int unit, int64_t bytes);

  /// Removes the unit at position `from` and inserts it so that it is at position `to`.
  void relocate(size_t from, size_t to);

  std::vector<int> order() const;

 private:
  struct Node {
    int left = -1, right = -1, parent = -1;
    uint32_t priority = 0;
    uint32_t size = 1;
    int64_t live = 0, extra = 0;
    int64_t pending = 0;  // bytes still to be added to `live` of all descendants
    int64_t peak = 0;     // the peak of the subtree, without the pending bytes of ancestors
  };
  const Node& node(int i) const { return nodes_[static_cast<size_t>(i)]; }
  Node& node(int i) { return nodes_[static_cast<size_t>(i)]; }
  size_t size(int i) const { return i < 0 ? 0 : node(i).size; }

  void add(int i, int64_t bytes);  // adds to the live bytes of a whole subtree
  void push_down(int i);
  void update(int i);
  void update_up(int i);
  void split(int i, size_t n, int& left, int& right);  // the first n units go to `left`
  int merge(int left, int right);

  std::vector<Node> nodes_;
  int root_ = -1;
};

}  // namespace stow
