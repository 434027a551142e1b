// Exact packing of plain buffers: reach a capacity or prove that none can, or find the least height.
// Not for rigid groups (heuristics.h); of many thousand buffers it only raises skylines (large.h).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "stowage/base/inside.h"
#include "stowage/pack/problem.h"

namespace stow::pack {

struct ExactOptions {
  /// Stop at a packing of at most this many bytes; without it, the least height is sought.
  std::optional<int64_t> capacity;
  /// Wall-clock seconds. The answer depends on it only where it runs out.
  double time_limit_s = 10;
  /// Counts work in place of the clock, near a tenth of a millisecond at a time: the same problem
  /// then has the same answer everywhere.
  bool counted = false;
};

enum class Verdict {
  kReached,     // A capacity was given and the packing is within it.
  kImpossible,  // A capacity was given and no packing is within it.
  kOptimal,     // No capacity was given and no packing is lower.
  kOutOfTime,   // Neither was found out: the packing is the best that was met.
};

struct ExactResult {
  Solution solution;        // Always valid, also when it is above the capacity.
  int64_t lower_bound = 0;  // No packing is lower: the largest live sum, or more where proven.
  Verdict verdict = Verdict::kOutOfTime;

  bool optimal() const { return solution.height == lower_bound; }
};

/// Errors: a buffer of several rectangles or of a relative offset other than 0; sizes that are no
/// multiples of the largest alignment.
Result<ExactResult> pack_exact(const Problem& problem, const ExactOptions& options = {});

}  // namespace stow::pack
