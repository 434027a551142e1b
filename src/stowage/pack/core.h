// The buffers that live where the live sum is near its largest, as a problem of their own.
// Not a packing: what is packed of them first leaves the others to be placed around it.
#pragma once

#include <cstdint>
#include <vector>

#include "stowage/pack/exact_search.h"

namespace stow::pack {

struct Core {
  std::vector<Item> items;   // Sections are numbered anew: those in which a maximal set lives.
  std::vector<int32_t> ids;  // Ids of the items, rising.
  int32_t n_sections = 0;
};

/// Returns the buffers that live at some time in a section where the live sum (`live` [n_sections])
/// is `least_live` or more; with 0, all buffers.
Core core_of(const std::vector<Item>& items, const std::vector<int64_t>& live, int64_t least_live);

}  // namespace stow::pack
