// The offset-assignment problem: rigid groups of rectangles in time x bytes, and its answers.
// Not a solver (heuristics.h, exact.h), and it knows nothing of tensors.
#pragma once

#include <cstdint>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"

namespace stow::pack {

/// `size` bytes at `offset` from the base of its buffer, live in the half-open [lower, upper).
/// Empty, and without effect, when size is 0 or lower equals upper.
struct Rect {
  int64_t offset = 0;
  int64_t size = 0;
  int64_t lower = 0;
  int64_t upper = 0;
};

/// Rectangles that move together: one for a plain value, one per iteration for a temporary of a
/// loop, one per slot for a stack. It may have none.
struct Buffer {
  std::vector<Rect> rects;
  int64_t alignment = 64;  // Alignment of the base: a power of two.
};

struct Problem {
  std::vector<Buffer> buffers;
};

/// The base of each buffer, and the bytes that suffice: the highest end of a rectangle.
struct Solution {
  std::vector<int64_t> offsets;
  int64_t height = 0;
};

/// Checks that the problem is well-formed: every alignment a power of two up to 2^40, offsets and
/// sizes not negative, lower <= upper, no two rectangles of a buffer sharing both time and bytes,
/// and all extents with their alignment together at most 2^62. The solvers require this and do not
/// check.
Result<void> check_problem(const Problem& problem);

/// The largest live sum over time: no solution is lower.
int64_t lower_bound(const Problem& problem);

/// The highest end of a rectangle under these offsets; 0 for an empty problem.
int64_t height_of(const Problem& problem, const std::vector<int64_t>& offsets);

/// Checks that the solution answers the problem: one offset a buffer, aligned and not negative, no
/// two rectangles sharing both time and bytes, and the height as stated. Shares no code with the
/// solvers. O(n log n) in the rectangles.
Result<void> validate(const Problem& problem, const Solution& solution);

}  // namespace stow::pack
