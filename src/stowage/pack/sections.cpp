#include "stowage/base/inside.h"
#include "stowage/pack/sections.h"

#include <algorithm>

namespace stow::pack {

Sections cut_sections(const Problem& problem) {
  struct Event {
    int64_t time;
    int32_t key;  // rect * 2 + 1 at its start, rect * 2 at its end.
  };
  Sections out;
  std::vector<Event> events;
  out.begin.reserve(problem.buffers.size() + 1);
  for (const Buffer& buffer : problem.buffers) {
    out.begin.push_back(static_cast<int32_t>(out.rects.size()));
    for (const Rect& r : buffer.rects) {
      if (r.size == 0 || r.lower == r.upper) continue;
      const auto index = static_cast<int32_t>(out.rects.size());
      events.push_back({r.lower, index * 2 + 1});
      events.push_back({r.upper, index * 2});
      out.rects.push_back({r.offset, r.size, 0, 0});
    }
  }
  out.begin.push_back(static_cast<int32_t>(out.rects.size()));
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    if (a.time != b.time) return a.time < b.time;
    return (a.key & 1) != (b.key & 1) ? (a.key & 1) < (b.key & 1) : a.key < b.key;
  });
  // A new section begins with the first start after an end: what is live just before an end is a
  // maximal set.
  bool ended = true;
  int64_t live = 0;
  for (const Event& event : events) {
    SectionRect& rect = out.rects[static_cast<size_t>(event.key >> 1)];
    if (event.key & 1) {
      if (ended) out.live.push_back(0);
      ended = false;
      rect.first = out.count() - 1;
      live += rect.size;
      out.live.back() = live;
      out.largest_live = std::max(out.largest_live, live);
    } else {
      rect.last = out.count() - 1;
      ended = true;
      live -= rect.size;
    }
  }
  return out;
}

}  // namespace stow::pack
