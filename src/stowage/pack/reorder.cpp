#include "stowage/pack/reorder.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "stowage/base/bytes.h"

namespace stow::pack {

int64_t count_overlaps(const Sections& sections) {
  std::vector<int64_t> started(static_cast<size_t>(sections.count()) + 1);
  for (const SectionRect& r : sections.rects) ++started[r.first + 1];
  int64_t n = 0;
  for (const int64_t together : started) n += together * (together - 1) / 2;
  // Then each with those that start within it, later.
  std::partial_sum(started.begin(), started.end(), started.begin());
  for (const SectionRect& r : sections.rects) n += started[r.last + 1] - started[r.first + 1];
  return n;
}

Reorder::Reorder(const Sections& sections, std::vector<int64_t> alignments)
    : sections_(sections), alignments_(std::move(alignments)) {
  const size_t n = sections.begin.size() - 1;
  extents_.resize(n);
  states_.resize(n);
  for (size_t b = 0; b < n; ++b)
    for (int32_t i = sections.begin[b]; i < sections.begin[b + 1]; ++i)
      extents_[b] = std::max(extents_[b], sections.rects[i].offset + sections.rects[i].size);
  find_overlaps();
}

void Reorder::find_overlaps() {
  const std::vector<SectionRect>& rects = sections_.rects;
  const auto n = static_cast<int32_t>(sections_.begin.size()) - 1;
  std::vector<int32_t> owner(rects.size()), by_first(rects.size());
  bool plain = true;
  for (int32_t b = 0; b < n; ++b) {
    for (int32_t i = sections_.begin[b]; i < sections_.begin[b + 1]; ++i) owner[i] = b;
    const int32_t first = sections_.begin[b], n_rects = sections_.begin[b + 1] - first;
    plain &= n_rects == 0 || (n_rects == 1 && rects[first].offset == 0);
  }
  std::iota(by_first.begin(), by_first.end(), 0);
  std::sort(by_first.begin(), by_first.end(), [&](int32_t a, int32_t b) {
    return std::tuple(rects[a].first, a) < std::tuple(rects[b].first, b);
  });
  // Twice: to count, and to fill in. What is live is kept in a list that shrinks as it is walked.
  struct Entry {
    int32_t other;
    Delta delta;
  };
  std::vector<Entry> entries;
  std::vector<int64_t> fill(static_cast<size_t>(n) + 1);
  std::vector<int32_t> live;
  const auto each_pair = [&](const auto& visit) {
    live.clear();
    for (const int32_t r : by_first) {
      size_t kept = 0;
      for (const int32_t s : live) {
        if (rects[s].last < rects[r].first) continue;
        live[kept++] = s;
        if (owner[r] != owner[s]) visit(r, s);
      }
      live.resize(kept);
      live.push_back(r);
    }
  };
  each_pair([&](int32_t r, int32_t s) {
    ++fill[owner[r] + 1];
    ++fill[owner[s] + 1];
  });
  std::partial_sum(fill.begin(), fill.end(), fill.begin());
  begin_ = fill;
  if (plain) {
    others_.resize(static_cast<size_t>(begin_.back()));
    each_pair([&](int32_t r, int32_t s) {
      others_[fill[owner[r]]++] = owner[s];
      others_[fill[owner[s]]++] = owner[r];
    });
    work_ += 4 * begin_.back();
    return;
  }
  entries.resize(static_cast<size_t>(begin_.back()));
  each_pair([&](int32_t r, int32_t s) {
    const SectionRect &a = rects[r], &b = rects[s];
    entries[fill[owner[r]]++] = {owner[s],
                                 {b.offset - a.offset - a.size, b.offset + b.size - a.offset}};
    entries[fill[owner[s]]++] = {owner[r],
                                 {a.offset - b.offset - b.size, a.offset + a.size - b.offset}};
  });
  work_ += 16 * begin_.back();
  // What two groups are to each other in every iteration of a loop is kept once.
  std::vector<int64_t> begin(static_cast<size_t>(n) + 1);
  for (int32_t b = 0; b < n; ++b) {
    const auto from = entries.begin() + begin_[b], to = entries.begin() + begin_[b + 1];
    std::sort(from, to, [](const Entry& x, const Entry& y) {
      return std::tuple(x.other, x.delta.low, x.delta.high) <
             std::tuple(y.other, y.delta.low, y.delta.high);
    });
    for (auto e = from; e != to; ++e) {
      if (static_cast<int64_t>(others_.size()) > begin[b] && others_.back() == e->other &&
          e->delta.low < deltas_.back().high) {
        deltas_.back().high = std::max(deltas_.back().high, e->delta.high);
        continue;
      }
      others_.push_back(e->other);
      deltas_.push_back(e->delta);
    }
    begin[b + 1] = static_cast<int64_t>(others_.size());
  }
  begin_ = std::move(begin);
}

void Reorder::start(std::vector<int32_t> order) {
  order_ = std::move(order);
  for (State& s : states_) s = {0, INT32_MAX, false};
  for (size_t i = 0; i < order_.size(); ++i)
    states_[order_[i]] = {-1, static_cast<int32_t>(i), true};
  first_stale_ = 0;
  placed_limit_ = 0;
}

int64_t Reorder::lowest(int32_t buffer) {
  const int32_t position = states_[buffer].position;
  const int64_t first = begin_[buffer], end = begin_[buffer + 1], alignment = alignments_[buffer];
  constexpr int64_t kGroup = 4;
  if (static_cast<int64_t>(taken_.size()) < align_up(end - first + 1, kGroup))
    taken_.resize(static_cast<size_t>(align_up(end - first + 1, kGroup)));
  // Without branches, which nothing would foretell.
  Delta* taken = taken_.data();
  size_t n = 0;
  const auto gather = [&](auto delta_of) {
    for (int64_t e = first; e < end; ++e) {
      const State& other = states_[others_[e]];
      const Delta d = delta_of(e);
      taken[n] = {other.offset + d.low, other.offset + d.high};
      n += static_cast<size_t>((other.position <= position) & (taken[n].high > 0));
    }
  };
  if (deltas_.empty()) {
    const int64_t extent = extents_[buffer];
    gather([&](int64_t e) { return Delta{-extent, extents_[others_[e]]}; });
  } else {
    gather([&](int64_t e) { return deltas_[e]; });
  }
  work_ += 8 + (end - first) / 2 + 2 * static_cast<int64_t>(n);
  // Up past what is in the way, until nothing is: a few times through the few that there are is
  // less than to sort them. Those of a group are compared with one base, and so do not wait for each
  // other; the least place that fits is the same in any order.
  for (size_t i = n; i % kGroup != 0; ++i) taken[i] = {0, 0};
  int64_t base = 0;
  for (int64_t before = -1; base != before;) {
    before = base;
    for (size_t i = 0; i < n; i += kGroup) {
      int64_t highest = 0;
      for (size_t k = i; k < i + kGroup; ++k)
        highest = std::max(highest, taken[k].high & -static_cast<int64_t>(taken[k].low < base));
      base = std::max(base, align_up(highest, alignment));
    }
  }
  return base;
}

size_t Reorder::place(int64_t limit) {
  if (limit < placed_limit_) {
    // Something before the first stale one may reach above a limit that has fallen.
    for (size_t i = 0; i < first_stale_; ++i)
      if (states_[order_[i]].offset > limit - extents_[order_[i]]) return i;
  }
  placed_limit_ = limit;
  work_ += static_cast<int64_t>(order_.size() - first_stale_) / 4;
  for (size_t i = first_stale_; i < order_.size(); ++i) {
    const int32_t b = order_[i];
    State& state = states_[b];
    if (state.stale) {
      const int64_t base = lowest(b);
      state.stale = false;
      if (base != state.offset) {
        state.offset = base;
        for (int64_t e = begin_[b]; e < begin_[b + 1]; ++e) {
          State& other = states_[others_[e]];
          other.stale |= other.position > state.position;
        }
      }
    }
    if (state.offset > limit - extents_[b]) {
      first_stale_ = i;
      return i;
    }
  }
  first_stale_ = order_.size();
  return order_.size();
}

void Reorder::move(size_t from, size_t to) {
  const int32_t b = order_[from];
  std::rotate(order_.begin() + static_cast<std::ptrdiff_t>(to),
              order_.begin() + static_cast<std::ptrdiff_t>(from),
              order_.begin() + static_cast<std::ptrdiff_t>(from) + 1);
  for (size_t i = to; i <= from; ++i) states_[order_[i]].position = static_cast<int32_t>(i);
  work_ += static_cast<int64_t>(from - to) / 4;
  states_[b].stale = true;
  for (int64_t e = begin_[b]; e < begin_[b + 1]; ++e) {
    State& other = states_[others_[e]];
    other.stale |= (other.position > static_cast<int32_t>(to)) &
                   (other.position <= static_cast<int32_t>(from));
  }
  first_stale_ = std::min(first_stale_, to);
}

std::vector<int64_t> Reorder::offsets() const {
  std::vector<int64_t> out;
  for (const State& s : states_) out.push_back(s.offset);
  return out;
}

int64_t Reorder::height() const {
  int64_t height = 0;
  for (const int32_t b : order_) height = std::max(height, states_[b].offset + extents_[b]);
  return height;
}

}  // namespace stow::pack
