#include "stowage/pack/occupancy.h"

#include <algorithm>

namespace stow::pack {
namespace {

void insert(IntervalList& list, Interval bytes) {
  // The first interval that touches or follows the new one, and the first beyond it. Halved without
  // branches, which nothing would foretell.
  const Interval* first = list.data();
  size_t n = list.size();
  while (n > 1) {
    const size_t half = n / 2;
    first += half & -static_cast<size_t>(first[half - 1].end < bytes.begin);
    n -= half;
  }
  if (n == 1 && first->end < bytes.begin) ++first;
  auto from = list.begin() + (first - list.data());
  if (from == list.end() || from->begin > bytes.end) {
    list.insert(from, bytes);
    return;
  }
  auto to = from;
  while (to != list.end() && to->begin <= bytes.end) ++to;
  from->begin = std::min(from->begin, bytes.begin);
  from->end = std::max(std::prev(to)->end, bytes.end);
  list.erase(std::next(from), to);
}

}  // namespace

Occupancy::Occupancy(int32_t n_sections) {
  while (leaves_ < n_sections) leaves_ *= 2;
  nodes_.resize(static_cast<size_t>(leaves_) * 2);
}

void Occupancy::clear() {
  for (const int32_t v : touched_) {
    nodes_[v].spanning.clear();
    nodes_[v].any.clear();
  }
  touched_.clear();
}

void Occupancy::add(int32_t first, int32_t last, Interval bytes) {
  const auto note = [&](int32_t v) {
    if (nodes_[v].any.empty()) touched_.push_back(v);
    insert(nodes_[v].any, bytes);
  };
  walk(
      first, last,
      [&](int32_t v) {
        note(v);
        insert(nodes_[v].spanning, bytes);
      },
      note);
}

}  // namespace stow::pack
