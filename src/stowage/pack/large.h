// Anytime packing of tens of thousands of plain buffers: rising skylines, lower and lower, of all
// buffers or from those at the peak outwards.
// Not exact (exact.h), and not for rigid groups (heuristics.h).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "stowage/pack/exact_search.h"

namespace stow::pack {

struct LargeOptions {
  int64_t target = 0;          // A height that is good enough; the largest live sum always is.
  int64_t passes = INT64_MAX;  // Work, in skylines of all items; the first always is raised.
  /// Asked now and then after the first pass; true ends the search.
  std::function<bool()> stop;
};

struct LargeResult {
  std::vector<int64_t> offsets;  // [items]
  int64_t height = 0;
};

/// The first pass takes about 2 microseconds an item, and each further one as long. The same
/// problem and options give the same answer, unless `stop` cuts in.
LargeResult pack_large(const std::vector<Item>& items, int32_t n_sections,
                       const LargeOptions& options);

}  // namespace stow::pack
