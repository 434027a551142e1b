// Anytime packing of tens of thousands of plain buffers, by passes over all buffers or a core.
// Not exact (exact.h), and not for rigid groups (heuristics.h).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "stowage/pack/exact_search.h"

namespace stow::pack {

struct LargeOptions {
  int64_t target = 0;          // The search ends at this height, or at the largest live sum.
  int64_t passes = INT64_MAX;  // Budget of work, in passes over all items; the first always runs.
  /// Called from time to time after the first pass; true ends the search.
  std::function<bool()> stop;
};

/// A valid packing.
struct LargeResult {
  std::vector<int64_t> offsets;  // [items]
  int64_t height = 0;
};

/// Packs the items. Each pass takes about 2 microseconds per item. The same problem and options
/// give the same result, unless `stop` ends the search.
LargeResult pack_large(const std::vector<Item>& items, int32_t n_sections,
                       const LargeOptions& options);

}  // namespace stow::pack
