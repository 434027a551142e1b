#include "stowage/passes/live_sequence.h"

#include <algorithm>

namespace stow {

LiveSequence::LiveSequence(const std::vector<int>& order, const std::vector<int64_t>& live,
                           const std::vector<int64_t>& extra)
    : nodes_(order.size()) {
  // The right spine of the tree so far, from the root: each unit goes below the last of a higher
  // priority.
  std::vector<int> spine;
  for (int unit : order) {
    const auto u = static_cast<size_t>(unit);
    Node& added = nodes_[u];
    added.priority = (static_cast<uint32_t>(u) + 1) * 0x9e3779b1u;
    added.priority = (added.priority ^ added.priority >> 15) * 0x85ebca77u;
    added.priority ^= added.priority >> 13;
    added.live = live[u];
    added.extra = extra[u];
    int below = -1;
    while (!spine.empty() && node(spine.back()).priority < added.priority) {
      below = spine.back();
      update(below);
      spine.pop_back();
    }
    added.left = below;
    if (!spine.empty()) node(spine.back()).right = unit;
    spine.push_back(unit);
  }
  for (; !spine.empty(); spine.pop_back()) {
    root_ = spine.back();
    update(root_);
  }
}

size_t LiveSequence::place(int unit) const {
  size_t n = size(node(unit).left);
  for (int i = unit, up = node(i).parent; up >= 0; i = up, up = node(i).parent)
    if (node(up).right == i) n += size(node(up).left) + 1;
  return n;
}

int LiveSequence::at(size_t place) const {
  int i = root_;
  for (size_t left; (left = size(node(i).left)) != place;) {
    if (place < left) {
      i = node(i).left;
    } else {
      place -= left + 1;
      i = node(i).right;
    }
  }
  return i;
}

int64_t LiveSequence::live(int unit) const {
  int64_t bytes = node(unit).live;
  for (int i = node(unit).parent; i >= 0; i = node(i).parent) bytes += node(i).pending;
  return bytes;
}

int64_t LiveSequence::peak() const { return root_ < 0 ? 0 : node(root_).peak; }

void LiveSequence::add_live(size_t begin, size_t end, int64_t bytes) {
  if (begin >= end || bytes == 0) return;
  int before, among, after;
  split(root_, end, among, after);
  split(among, begin, before, among);
  add(among, bytes);
  root_ = merge(merge(before, among), after);
}

void LiveSequence::set_live(int unit, int64_t bytes) {
  node(unit).live += bytes - live(unit);
  update_up(unit);
}

void LiveSequence::set_extra(int unit, int64_t bytes) {
  node(unit).extra = bytes;
  update_up(unit);
}

void LiveSequence::relocate(size_t from, size_t to) {
  if (from == to) return;
  int before, unit, after;
  split(root_, from + 1, unit, after);
  split(unit, from, before, unit);
  split(merge(before, after), to, before, after);
  root_ = merge(merge(before, unit), after);
}

std::vector<int> LiveSequence::order() const {
  std::vector<int> order, above;
  order.reserve(nodes_.size());
  for (int i = root_; i >= 0 || !above.empty();) {
    for (; i >= 0; i = node(i).left) above.push_back(i);
    order.push_back(above.back());
    i = node(above.back()).right;
    above.pop_back();
  }
  return order;
}

void LiveSequence::add(int i, int64_t bytes) {
  if (i < 0) return;
  node(i).live += bytes;
  node(i).pending += bytes;
  node(i).peak += bytes;
}

void LiveSequence::push_down(int i) {
  Node& top = node(i);
  if (top.pending == 0) return;
  add(top.left, top.pending);
  add(top.right, top.pending);
  top.pending = 0;
}

void LiveSequence::update(int i) {
  Node& top = node(i);
  top.size = 1;
  top.peak = top.live + top.extra;
  for (int below : {top.left, top.right}) {
    if (below < 0) continue;
    node(below).parent = i;
    top.size += node(below).size;
    top.peak = std::max(top.peak, node(below).peak + top.pending);
  }
}

void LiveSequence::update_up(int i) {
  for (; i >= 0; i = node(i).parent) update(i);
}

void LiveSequence::split(int i, size_t n, int& left, int& right) {
  if (i < 0) {
    left = right = -1;
    return;
  }
  push_down(i);
  Node& top = node(i);
  if (size(top.left) < n) {
    split(top.right, n - size(top.left) - 1, top.right, right);
    left = i;
  } else {
    split(top.left, n, left, top.left);
    right = i;
  }
  update(i);
  for (int part : {left, right})
    if (part >= 0) node(part).parent = -1;
}

int LiveSequence::merge(int left, int right) {
  if (left < 0 || right < 0) return left < 0 ? right : left;
  const bool left_above = node(left).priority > node(right).priority;
  const int top = left_above ? left : right;
  push_down(top);
  if (left_above)
    node(top).right = merge(node(top).right, right);
  else
    node(top).left = merge(left, node(top).left);
  update(top);
  node(top).parent = -1;
  return top;
}

}  // namespace stow
