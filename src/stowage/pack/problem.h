// The offset-assignment problem: rigid groups of rectangles in time x bytes; and its solutions.
// Not a solver (heuristics.h, exact.h). Independent of tensors.
#pragma once

#include <cstdint>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"

namespace stow::pack {

/// `size` bytes at `offset` from the base of their buffer, live in the half-open time [lower,
/// upper). A rectangle whose size is 0 or whose lower equals upper has no effect.
struct Rect {
  int64_t offset = 0;
  int64_t size = 0;
  int64_t lower = 0;
  int64_t upper = 0;
};

/// A rigid group of rectangles, which move together: one for a plain value, one per iteration for a
/// temporary of a loop, one per slot for a stack; possibly none.
struct Buffer {
  std::vector<Rect> rects;
  int64_t alignment = 64;  // Alignment of the base: a power of two.
};

struct Problem {
  std::vector<Buffer> buffers;
};

/// The base of each buffer, and the height: the highest end of a rectangle, in bytes.
struct Solution {
  std::vector<int64_t> offsets;
  int64_t height = 0;
};

/// Checks that the problem is well-formed: every alignment a power of two up to 2^40, offsets and
/// sizes not negative, lower <= upper, no two rectangles of a buffer sharing both time and bytes,
/// and at most 2^62 bytes in all buffers with their alignments. The solvers require these
/// properties and do not check them.
Result<void> check_problem(const Problem& problem);

/// Returns the largest live sum over time, a lower bound of every solution's height.
int64_t lower_bound(const Problem& problem);

/// Returns the highest end of a rectangle under these offsets; 0 for an empty problem.
int64_t height_of(const Problem& problem, const std::vector<int64_t>& offsets);

/// Checks that the solution is valid: one offset per buffer, aligned and not negative; no two
/// rectangles share both time and bytes; the height is that of the offsets. Shares no code with the
/// solvers. O(n log n) for n rectangles.
Result<void> validate(const Problem& problem, const Solution& solution);

}  // namespace stow::pack
