#include "stowage/pack/placer.h"

#include <algorithm>

#include "stowage/base/bytes.h"

namespace stow::pack {
namespace {

// Finding and filling the nodes of one rectangle, in steps of a cursor.
constexpr int64_t kWorkPerRect = 64;

// Moves the cursor to the first interval that ends above `at`, in steps that double and then
// halve. False if there is none.
template <typename Cursor>
bool skip_below(Cursor& c, int64_t at, int64_t* work) {
  if (c.next == c.end || c.next->end > at) return c.next != c.end;
  const Interval* low = c.next;  // Ends at or below `at`.
  int64_t step = 1;
  for (; step < c.end - low && low[step].end <= at; step *= 2, ++*work) low += step;
  const Interval* high = low + std::min<int64_t>(step, c.end - low);  // Ends above it, or the end.
  for (; high - low > 1; ++*work) {
    const Interval* const middle = low + (high - low) / 2;
    (middle->end <= at ? low : high) = middle;
  }
  c.next = high;
  return c.next != c.end;
}

}  // namespace

Placer::Placer(const Problem& problem, const Sections& sections)
    : problem_(problem),
      sections_(sections),
      occupancy_(sections.count()),
      extents_(problem.buffers.size()),
      offsets_(problem.buffers.size()) {
  for (size_t b = 0; b < extents_.size(); ++b)
    for (int32_t i = sections.begin[b]; i < sections.begin[b + 1]; ++i)
      extents_[b] = std::max(extents_[b], sections.rects[i].offset + sections.rects[i].size);
}

// The lowest aligned base, not below `base`, at which no rectangle meets what is occupied. Cursors
// only move forward, so `base` must not decrease from call to call.
int64_t Placer::lowest_from(int64_t base, int64_t alignment) {
  for (bool moved = true; moved;) {
    moved = false;
    size_t kept = 0;
    for (size_t k = 0; k < cursors_.size(); ++k) {
      Cursor c = cursors_[k];
      ++work_;
      while (skip_below(c, base + c.offset, &work_) && c.next->begin < base + c.offset + c.size) {
        base = align_up(c.next->end - c.offset, alignment);
        moved = true;
      }
      if (c.next != c.end) cursors_[kept++] = c;
    }
    cursors_.resize(kept);
  }
  return base;
}

// The distance that a buffer that is free at `base` could rise before it meets another.
int64_t Placer::slack_above(int64_t base) const {
  int64_t slack = INT64_MAX;
  for (const Cursor& c : cursors_)
    slack = std::min(slack, c.next->begin - (base + c.offset + c.size));
  return slack;
}

int64_t Placer::find(int32_t buffer, Fit fit, int64_t limit) {
  cursors_.clear();
  for (int32_t i = sections_.begin[buffer]; i < sections_.begin[buffer + 1]; ++i) {
    const SectionRect& r = sections_.rects[i];
    work_ += kWorkPerRect;
    occupancy_.lists(r.first, r.last, [&](const IntervalList& list) {
      cursors_.push_back({list.data(), list.data() + list.size(), r.offset, r.size});
    });
  }
  const int64_t alignment = problem_.buffers[buffer].alignment;
  int64_t base = lowest_from(0, alignment);
  if (fit == Fit::kFirst) return base;
  int64_t best = base, least = INT64_MAX;
  while (base <= limit - extents_[buffer]) {
    const int64_t slack = slack_above(base);
    work_ += static_cast<int64_t>(cursors_.size());
    if (slack < least) {
      least = slack;
      best = base;
    }
    if (slack == INT64_MAX || slack == 0) break;
    base = lowest_from(base + align_up(slack + 1, alignment), alignment);
  }
  return best;
}

size_t Placer::run(const std::vector<int32_t>& order, Fit fit, int64_t limit,
                   const std::function<bool()>& stop) {
  occupancy_.clear();
  std::fill(offsets_.begin(), offsets_.end(), 0);
  height_ = 0;
  for (size_t at = 0; at < order.size(); ++at) {
    const int32_t b = order[at];
    const int64_t base = find(b, fit, limit);
    if (base > limit - extents_[b]) return at;
    if (at % 512 == 511 && stop && stop()) return at;
    offsets_[b] = base;
    height_ = std::max(height_, base + extents_[b]);
    for (int32_t i = sections_.begin[b]; i < sections_.begin[b + 1]; ++i) {
      const SectionRect& r = sections_.rects[i];
      occupancy_.add(r.first, r.last, {base + r.offset, base + r.offset + r.size});
    }
  }
  return order.size();
}

}  // namespace stow::pack
