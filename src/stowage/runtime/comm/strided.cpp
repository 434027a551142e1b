#include "stowage/runtime/comm/strided.h"

#include <algorithm>
#include <cstring>

namespace stow::comm {
namespace {

std::byte* address(const Strided& part, int64_t at) {
  if (part.is_contiguous()) return part.base + at;
  return part.base + at / part.row_bytes * part.stride_bytes + at % part.row_bytes;
}

// Bytes from `at` on that follow each other.
int64_t run_bytes(const Strided& part, int64_t at) {
  return part.is_contiguous() ? part.bytes() - at : part.row_bytes - at % part.row_bytes;
}

// Rows of a few bytes: a call of memcpy a row would take most of the time.
template <int64_t kBytes>
void copy_rows(const std::byte* from, int64_t from_stride, std::byte* to, int64_t to_stride,
               int64_t rows) {
  for (int64_t row = 0; row < rows; ++row)
    std::memcpy(to + row * to_stride, from + row * from_stride, kBytes);
}

}  // namespace

Strided contiguous(const std::byte* base, int64_t bytes) {
  return {const_cast<std::byte*>(base), 1, bytes, bytes};
}

Strided part_of(const std::byte* base, int64_t outer, int64_t n, int64_t inner_bytes,
                int64_t index) {
  return {const_cast<std::byte*>(base) + index * inner_bytes, outer, inner_bytes, n * inner_bytes};
}

void copy(const Strided& from, int64_t from_at, const Strided& to, int64_t to_at, int64_t bytes) {
  while (bytes > 0) {
    const int64_t run = std::min({bytes, run_bytes(from, from_at), run_bytes(to, to_at)});
    const std::byte* const source = address(from, from_at);
    std::byte* const target = address(to, to_at);
    // Whole rows on both sides, or on one where the other has no gaps.
    const int64_t rows = bytes / run;
    const bool whole = rows > 1 &&
                       (from.is_contiguous() || (from.row_bytes == run && from_at % run == 0)) &&
                       (to.is_contiguous() || (to.row_bytes == run && to_at % run == 0));
    if (whole && run <= 16) {
      const int64_t from_stride = from.is_contiguous() ? run : from.stride_bytes;
      const int64_t to_stride = to.is_contiguous() ? run : to.stride_bytes;
      int64_t done = rows * run;
      switch (run) {
        case 1: copy_rows<1>(source, from_stride, target, to_stride, rows); break;
        case 2: copy_rows<2>(source, from_stride, target, to_stride, rows); break;
        case 4: copy_rows<4>(source, from_stride, target, to_stride, rows); break;
        case 8: copy_rows<8>(source, from_stride, target, to_stride, rows); break;
        case 16: copy_rows<16>(source, from_stride, target, to_stride, rows); break;
        default:
          std::memcpy(target, source, static_cast<size_t>(run));
          done = run;
      }
      from_at += done;
      to_at += done;
      bytes -= done;
      continue;
    }
    if (source != target) std::memcpy(target, source, static_cast<size_t>(run));
    from_at += run;
    to_at += run;
    bytes -= run;
  }
}

const std::byte* read_at(const Strided& from, int64_t at, int64_t bytes, std::byte* scratch) {
  if (run_bytes(from, at) >= bytes) return address(from, at);
  copy(from, at, contiguous(scratch, bytes), 0, bytes);
  return scratch;
}

}  // namespace stow::comm
