// Exact packing of plain buffers: fits a capacity or proves it impossible, or minimizes the height.
// Not for rigid groups (heuristics.h). For many thousand buffers it falls back to large.h.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "stowage/base/inside.h"
#include "stowage/pack/problem.h"

namespace stow::pack {

struct ExactOptions {
  /// The search ends at a packing of at most this many bytes. None: it minimizes the height.
  std::optional<int64_t> capacity;
  /// Wall-clock seconds. The result depends on the clock only if the limit is reached.
  double time_limit_s = 10;
  /// True: the limit counts work, in units of about a tenth of a millisecond, instead of time. The
  /// same problem then has the same result on every machine.
  bool counted = false;
};

enum class Verdict {
  kReached,     // A capacity was given and the packing is within it.
  kImpossible,  // A capacity was given and no packing is within it.
  kOptimal,     // No capacity was given and no packing is lower.
  kOutOfTime,   // The limit was reached; the packing is the best one found.
};

struct ExactResult {
  Solution solution;        // Always valid, even if it exceeds the capacity.
  int64_t lower_bound = 0;  // Proven minimum of the height; at least the largest live sum.
  Verdict verdict = Verdict::kOutOfTime;

  bool optimal() const { return solution.height == lower_bound; }  // True if proven optimal.
};

/// Packs a problem of plain buffers. Errors: a buffer has several rectangles, or a rectangle whose
/// offset is not 0; a size is not a multiple of the largest alignment.
Result<ExactResult> pack_exact(const Problem& problem, const ExactOptions& options = {});

}  // namespace stow::pack
