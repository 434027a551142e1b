// Strided: a part of an array as rows at a stride, read or written as one sequence of bytes.
// Not a tensor view: a cut along one axis is all that a collective needs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stow::comm {

/// `rows` rows of `row_bytes` bytes, `stride_bytes` apart. Offsets into it skip the gaps between
/// rows: the same offset is the same element in every layout of a part.
struct Strided {
  std::byte* base = nullptr;
  int64_t rows = 0;
  int64_t row_bytes = 0;
  int64_t stride_bytes = 0;

  int64_t bytes() const { return rows * row_bytes; }
  /// True if its bytes follow each other without gaps.
  bool is_contiguous() const { return rows <= 1 || stride_bytes == row_bytes; }
};

/// Returns `bytes` contiguous bytes at `base`. The memory may be read-only if nobody writes through
/// the result.
Strided contiguous(const std::byte* base, int64_t bytes);

/// Returns part `index` of an array of the form [outer, n, inner_bytes], cut along its middle axis.
Strided part_of(const std::byte* base, int64_t outer, int64_t n, int64_t inner_bytes,
                int64_t index);

/// Copies `bytes` bytes from offset `from_at` of `from` to offset `to_at` of `to`. Source and
/// destination must be the same bytes or not overlap.
void copy(const Strided& from, int64_t from_at, const Strided& to, int64_t to_at, int64_t bytes);

/// Returns a pointer to `bytes` bytes from offset `at`: into the part itself if they are
/// contiguous, else to `scratch`, to which they are copied.
const std::byte* read_at(const Strided& from, int64_t at, int64_t bytes, std::byte* scratch);

}  // namespace stow::comm
