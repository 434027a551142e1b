// Sections: the maximal sets of rectangles that are live at the same time, in order of time.
// Not a timeline of instants: two rectangles overlap in time exactly if they share a section.
#pragma once

#include <cstdint>
#include <vector>

#include "stowage/pack/problem.h"

namespace stow::pack {

/// A nonempty rectangle, with its lifetime as an inclusive range of sections.
struct SectionRect {
  int64_t offset = 0;  // From the base of its buffer.
  int64_t size = 0;
  int32_t first = 0;
  int32_t last = 0;
};

/// The rectangles of a problem by buffer, with lifetimes in sections.
struct Sections {
  std::vector<SectionRect> rects;  // Buffer by buffer.
  std::vector<int32_t> begin;      // Buffer b has rects[begin[b]] up to rects[begin[b + 1]].
  std::vector<int64_t> live;       // [sections] the live sum of each.
  int64_t largest_live = 0;

  int32_t count() const { return static_cast<int32_t>(live.size()); }
};

/// Cuts the problem's time into sections, at most as many as rectangles. O(n log n).
Sections cut_sections(const Problem& problem);

}  // namespace stow::pack
