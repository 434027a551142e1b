// The judge of solutions. It includes the problem's types alone: nothing that a solver uses.
#include <algorithm>
#include <map>

#include "stowage/pack/problem.h"

namespace stow::pack {
namespace {

// A rectangle at its absolute place.
struct Placed {
  int64_t begin, end, lower, upper;
  size_t buffer;
};

struct Event {
  int64_t time;
  bool start;  // At one instant ends (false) come first: lifetimes are half-open.
  size_t placed;
};

Failure clash(const Placed& a, const Placed& b) {
  return fail("buffers {} and {} share bytes [{}, {}) at time {}", a.buffer, b.buffer,
              std::max(a.begin, b.begin), std::min(a.end, b.end), std::max(a.lower, b.lower));
}

}  // namespace

Result<void> validate(const Problem& problem, const Solution& solution) {
  if (solution.offsets.size() != problem.buffers.size())
    return fail("{} offsets for {} buffers", solution.offsets.size(), problem.buffers.size());
  std::vector<Placed> placed;
  int64_t height = 0;
  for (size_t b = 0; b < problem.buffers.size(); ++b) {
    const int64_t base = solution.offsets[b], alignment = problem.buffers[b].alignment;
    if (base < 0) return fail("buffer {}: offset {} is negative", b, base);
    if (alignment < 1 || base % alignment != 0)
      return fail("buffer {}: expected a multiple of its alignment {} as offset, got {}", b,
                  alignment, base);
    for (const Rect& r : problem.buffers[b].rects) {
      if (r.size < 0 || r.offset < 0 || r.lower > r.upper)
        return fail("buffer {}: a malformed rectangle", b);
      int64_t begin = 0, end = 0;
      if (__builtin_add_overflow(base, r.offset, &begin) ||
          __builtin_add_overflow(begin, r.size, &end))
        return fail("buffer {}: its end overflows", b);
      if (r.size == 0 || r.lower == r.upper) continue;
      placed.push_back({begin, end, r.lower, r.upper, b});
      height = std::max(height, end);
    }
  }
  if (solution.height != height)
    return fail("height {} is stated and {} is reached", solution.height, height);

  std::vector<Event> events;
  events.reserve(2 * placed.size());
  for (size_t p = 0; p < placed.size(); ++p) {
    events.push_back({placed[p].lower, true, p});
    events.push_back({placed[p].upper, false, p});
  }
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return a.time != b.time ? a.time < b.time : a.start < b.start;
  });
  // Live buffers by their first byte. As long as no two share bytes, a newcomer can only clash with
  // the two beside it.
  std::map<int64_t, size_t> live;
  for (const Event& event : events) {
    const Placed& p = placed[event.placed];
    if (!event.start) {
      live.erase(p.begin);
      continue;
    }
    const auto above = live.lower_bound(p.begin);
    if (above != live.end() && placed[above->second].begin < p.end)
      return clash(p, placed[above->second]);
    if (above != live.begin() && placed[std::prev(above)->second].end > p.begin)
      return clash(p, placed[std::prev(above)->second]);
    live.emplace_hint(above, p.begin, event.placed);
  }
  return {};
}

}  // namespace stow::pack
