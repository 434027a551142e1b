// Square blocks that are transposed in vectors of 16 bytes.
// Not a strided copy in general; copy.cpp and row_kernels_move.cpp cut theirs into such blocks.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

namespace stow::cpu {

/// Number of rows, and of columns, of a block of elements of type W.
template <typename W>
inline constexpr int64_t kTransposedBlock = 16 / int64_t{sizeof(W)};

/// dst[c * dst_step + r] = src[r * src_step + c] for r and c in [0, kTransposedBlock<W>). W is an
/// unsigned integer; steps are in elements; dst and src do not overlap.
template <typename W>
[[gnu::always_inline]] inline void transpose_block(W* dst, int64_t dst_step, const W* src,
                                                   int64_t src_step) {
  constexpr int kSize = static_cast<int>(kTransposedBlock<W>);
  using V [[gnu::vector_size(16)]] = W;
  V rows[kSize], zipped[kSize];
  for (int r = 0; r < kSize; ++r) std::memcpy(&rows[r], src + r * src_step, sizeof(V));
  // Zipping row i with row i + kSize / 2 moves one bit of the column's number to the row's.
  const auto zip = [&]<size_t... I>(std::index_sequence<I...>) {
    for (int i = 0; i < kSize / 2; ++i) {
      const V a = rows[i], b = rows[i + kSize / 2];
      zipped[2 * i] = __builtin_shufflevector(a, b, (I % 2 * kSize + I / 2)...);
      zipped[2 * i + 1] = __builtin_shufflevector(a, b, (I % 2 * kSize + I / 2 + kSize / 2)...);
    }
    for (int i = 0; i < kSize; ++i) rows[i] = zipped[i];
  };
  for (int size = 1; size < kSize; size *= 2) zip(std::make_index_sequence<kSize>());
  for (int c = 0; c < kSize; ++c) std::memcpy(dst + c * dst_step, &rows[c], sizeof(V));
}

/// As transpose_block() for n_rows rows and n_columns columns of src.
template <typename W>
void transpose_rows(W* dst, int64_t dst_step, const W* src, int64_t src_step, int64_t n_rows,
               int64_t n_columns) {
  constexpr int64_t kSize = kTransposedBlock<W>;
  const int64_t rows = n_rows / kSize * kSize, columns = n_columns / kSize * kSize;
  for (int64_t c = 0; c < columns; c += kSize)
    for (int64_t r = 0; r < rows; r += kSize)
      transpose_block(dst + c * dst_step + r, dst_step, src + r * src_step + c, src_step);
  for (int64_t c = 0; c < n_columns; ++c)
    for (int64_t r = c < columns ? rows : 0; r < n_rows; ++r)
      dst[c * dst_step + r] = src[r * src_step + c];
}

}  // namespace stow::cpu
