#include "stowage/pack/reorder.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>
#include <tuple>
#include <utility>

#include "stowage/base/bytes.h"

namespace stow::pack {
namespace {

// Number of ranges that one iteration examines.
constexpr size_t kGroup = 8;
using Lanes = int64_t __attribute__((vector_size(kGroup / 2 * sizeof(int64_t))));

// Returns the least aligned base that is in none of the ranges low < base < high. `n` is a multiple
// of kGroup. Ranges that end at or below 0 have no effect. The base rises past each range that
// covers it, until none does. A few passes over the few ranges cost less than sorting them, and any
// order of the ranges gives the same base.
__attribute__((always_inline)) inline int64_t find_base(const int64_t* low, const int64_t* high,
                                                        size_t n, int64_t alignment) {
  int64_t base = 0;
  for (int64_t before = -1; base != before;) {
    before = base;
    Lanes bases = Lanes{} + base;
    for (size_t i = 0; i < n; i += kGroup) {
      Lanes low_a, low_b, high_a, high_b;
      std::memcpy(&low_a, low + i, sizeof low_a);
      std::memcpy(&low_b, low + i + kGroup / 2, sizeof low_b);
      std::memcpy(&high_a, high + i, sizeof high_a);
      std::memcpy(&high_b, high + i + kGroup / 2, sizeof high_b);
      high_a &= low_a < bases;
      high_b &= low_b < bases;
      const Lanes highest = high_a > high_b ? high_a : high_b;
      const Lanes beyond = highest > bases;
      if ((beyond[0] | beyond[1] | beyond[2] | beyond[3]) == 0) continue;
      base = align_up(std::max({highest[0], highest[1], highest[2], highest[3]}), alignment);
      bases = Lanes{} + base;
    }
  }
  return base;
}

// find_base is compiled twice, as machines without AVX2 have no comparison of 64-bit lanes.
using FindBase = int64_t (*)(const int64_t*, const int64_t*, size_t, int64_t);
int64_t find_base_narrow(const int64_t* low, const int64_t* high, size_t n, int64_t alignment) {
  return find_base(low, high, n, alignment);
}
#if defined(__x86_64__)
__attribute__((target("avx2"))) int64_t find_base_wide(const int64_t* low, const int64_t* high,
                                                       size_t n, int64_t alignment) {
  return find_base(low, high, n, alignment);
}
FindBase fastest_find_base() {
  return __builtin_cpu_supports("avx2") ? find_base_wide : find_base_narrow;
}
#else
FindBase fastest_find_base() { return find_base_narrow; }
#endif

}  // namespace

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
  // Pairs of rectangles that share a section. `live` holds the rectangles that may still be live;
  // the walk removes those that have ended.
  using RectPair = std::pair<int32_t, int32_t>;
  std::vector<RectPair> pairs;
  std::vector<int64_t> fill(static_cast<size_t>(n) + 1);
  std::vector<int32_t> live;
  for (const int32_t r : by_first) {
    size_t kept = 0;
    for (const int32_t s : live) {
      if (rects[s].last < rects[r].first) continue;
      live[kept++] = s;
      if (owner[r] == owner[s]) continue;
      pairs.emplace_back(r, s);
      ++fill[owner[r] + 1];
      ++fill[owner[s] + 1];
    }
    live.resize(kept);
    live.push_back(r);
  }
  std::partial_sum(fill.begin(), fill.end(), fill.begin());
  begin_ = fill;
  if (plain) {
    others_.resize(static_cast<size_t>(begin_.back()));
    for (const auto& [r, s] : pairs) {
      others_[fill[owner[r]]++] = owner[s];
      others_[fill[owner[s]]++] = owner[r];
    }
    work_ += 4 * begin_.back();
    return;
  }
  work_ += 8 * begin_.back();
  // Two counting sorts. The second fills the bucket of each owner in the order of the other owner,
  // so each bucket is sorted by it.
  std::vector<RectPair> unsorted(static_cast<size_t>(begin_.back())), sorted(unsorted.size());
  for (const auto& [r, s] : pairs) {
    unsorted[fill[owner[r]]++] = {r, s};
    unsorted[fill[owner[s]]++] = {s, r};
  }
  fill.assign(begin_.begin(), begin_.end());
  for (const auto& [r, s] : unsorted) sorted[fill[owner[s]]++] = {s, r};
  // Two groups overlap once in every iteration of a loop. Equal and overlapping ranges of two
  // buffers become one.
  std::vector<Delta> ranges;  // Ranges of one pair of buffers.
  for (int32_t b = 0; b < n; ++b) {
    auto at = sorted.begin() + static_cast<std::ptrdiff_t>(begin_[b]);
    const auto end = sorted.begin() + static_cast<std::ptrdiff_t>(begin_[b + 1]);
    begin_[b] = static_cast<int64_t>(others_.size());
    while (at != end) {
      const int32_t other = owner[at->second];
      ranges.clear();
      for (; at != end && owner[at->second] == other; ++at) {
        const SectionRect &own = rects[at->first], &theirs = rects[at->second];
        ranges.push_back({theirs.offset - own.offset - own.size,
                          theirs.offset + theirs.size - own.offset});
      }
      std::sort(ranges.begin(), ranges.end(), [](const Delta& x, const Delta& y) {
        return x.low != y.low ? x.low < y.low : x.high < y.high;
      });
      const size_t first = deltas_.size();
      for (const Delta& range : ranges) {
        if (deltas_.size() > first && range.low < deltas_.back().high) {
          deltas_.back().high = std::max(deltas_.back().high, range.high);
          continue;
        }
        others_.push_back(other);
        deltas_.push_back(range);
      }
    }
  }
  begin_[n] = static_cast<int64_t>(others_.size());
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
  const auto most = static_cast<size_t>(align_up(end - first + 1, kGroup));
  if (low_.size() < most) {
    low_.resize(most);
    high_.resize(most);
  }
  // Without branches, because they would be unpredictable.
  int64_t *low = low_.data(), *high = high_.data();
  size_t n = 0;
  const auto gather = [&](auto delta_of) {
    for (int64_t e = first; e < end; ++e) {
      const State& other = states_[others_[e]];
      const Delta d = delta_of(e);
      low[n] = other.offset + d.low;
      high[n] = other.offset + d.high;
      n += static_cast<size_t>((other.position <= position) & (high[n] > 0));
    }
  };
  if (deltas_.empty()) {
    const int64_t extent = extents_[buffer];
    gather([&](int64_t e) { return Delta{-extent, extents_[others_[e]]}; });
  } else {
    gather([&](int64_t e) { return deltas_[e]; });
  }
  work_ += 8 + (end - first) / 2 + 2 * static_cast<int64_t>(n);
  for (; n % kGroup != 0; ++n) low[n] = high[n] = 0;
  static const FindBase find = fastest_find_base();
  return find(low, high, n, alignment);
}

size_t Reorder::place(int64_t limit) {
  if (limit < placed_limit_) {
    // The limit has fallen: a buffer before the first stale one may end above it.
    for (size_t i = 0; i < first_stale_; ++i)
      if (states_[order_[i]].offset > limit - extents_[order_[i]]) return i;
  }
  placed_limit_ = limit;
  work_ += static_cast<int64_t>(order_.size() - first_stale_) / 4;
  for (size_t i = first_stale_; i < order_.size(); ++i) {
    const int32_t b = order_[i];
    State& state = states_[b];
    if (state.stale) {
      const int64_t before = std::exchange(state.offset, lowest(b));
      state.stale = false;
      // A buffer that is placed for the first time needs no marking: later buffers have no place
      // yet, or move() has marked them.
      if (before >= 0 && before != state.offset) {
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
