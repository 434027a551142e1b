// Core: the buffers that are live near the peak of the live sum, as a smaller problem.
// Not a packing. large.cpp packs a core first and places the remaining buffers around it.
#pragma once

#include <cstdint>
#include <vector>

#include "stowage/pack/exact_search.h"

namespace stow::pack {

/// A packing problem over some of the buffers of a larger one.
struct Core {
  std::vector<Item> items;   // Lifetimes in the core's own sections: its maximal live sets.
  std::vector<int32_t> ids;  // Index of each item in the original problem, increasing.
  int32_t n_sections = 0;
};

/// Returns the buffers that are live in a section whose live sum (`live` [n_sections]) is at least
/// `least_live`; with 0, all buffers.
Core core_of(const std::vector<Item>& items, const std::vector<int64_t>& live, int64_t least_live);

}  // namespace stow::pack
