// items_of: the buffers of a packing problem in the form that pack/exact_search.h takes.
// Not problems; pack_instances.h has those.
#pragma once

#include <vector>

#include "stowage/pack/exact_search.h"
#include "stowage/pack/sections.h"

namespace stow::pack {

inline std::vector<Item> items_of(const Sections& sections) {
  std::vector<Item> items;
  for (const SectionRect& r : sections.rects) items.push_back({r.size, r.first, r.last});
  return items;
}

}  // namespace stow::pack
