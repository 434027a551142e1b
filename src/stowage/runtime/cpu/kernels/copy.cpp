// Strided copies: rows where the innermost axis suits both sides, tiles where it does not.
#include <array>
#include <cstring>

#include "stowage/base/error.h"
#include "stowage/runtime/cpu/kernels/op_families.h"
#include "stowage/runtime/cpu/kernels/op_kernels.h"
#include "stowage/runtime/cpu/kernels/op_types.h"
#include "stowage/runtime/cpu/kernels/parallel_for.h"
#include "stowage/runtime/cpu/kernels/repeat_row.h"
#include "stowage/runtime/cpu/kernels/reverse_row.h"
#include "stowage/runtime/cpu/kernels/transpose_block.h"

namespace stow::cpu::kernels {
namespace {

template <typename W>
void copy_row(W* dst, int64_t dst_stride, const W* src, int64_t src_stride, int64_t n) {
  if (dst_stride == 1 && src_stride == 1) {
    std::memcpy(dst, src, static_cast<size_t>(n) * sizeof(W));
  } else if (src_stride == 0) {
    const W value = *src;
    if (dst_stride == 1)
      std::fill_n(dst, n, value);
    else
      for (int64_t i = 0; i < n; ++i) dst[i * dst_stride] = value;
  } else if (dst_stride == 1 && src_stride == -1) {
    reverse_row(dst, src, n);
  } else if (dst_stride == 1) {
    for (int64_t i = 0; i < n; ++i) dst[i] = src[i * src_stride];
  } else {
    for (int64_t i = 0; i < n; ++i) dst[i * dst_stride] = src[i * src_stride];
  }
}

template <typename W>
void copy_rows(W* dst, const W* src, Nest<2> nest, int threads) {
  constexpr int64_t kPiece = 16384;  // elements a unit at most, so that one long row is shared
  if (nest.empty()) nest.push_back({1, {1, 1}});
  const LoopAxis<2> row = nest.back();
  nest.pop_back();
  const int64_t pieces = (row.extent + kPiece - 1) / kPiece;
  const int64_t unit_bytes = std::min(row.extent, kPiece) * int64_t{sizeof(W)};
  const auto body = [&](int64_t begin, int64_t end, int) {
    Walk<2> walk(nest, begin / pieces);
    int64_t piece = begin % pieces;
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t first = piece * kPiece, n = std::min(kPiece, row.extent - first);
      copy_row(dst + walk.offset[0] + first * row.stride[0], row.stride[0],
               src + walk.offset[1] + first * row.stride[1], row.stride[1], n);
      if (++piece == pieces) {
        piece = 0;
        walk.next();
      }
    }
  };
  parallel_for(threads, count(nest) * pieces, kBytesPerThread / unit_bytes, body);
}

// n groups of elements, each group of `group.extent`.
template <typename W>
void copy_groups(W* dst, int64_t dst_step, const W* src, int64_t src_step, int64_t n,
                 const LoopAxis<2>& group) {
  const bool repeats = group.stride == std::array<int64_t, 2>{1, 0} && src_step == 1 &&
                       dst_step == group.extent;
  if (repeats && group.extent == 2) return repeat_row<2>(dst, src, n);
  if (repeats && group.extent == 3) return repeat_row<3>(dst, src, n);
  if (repeats && group.extent == 4) return repeat_row<4>(dst, src, n);
  constexpr int64_t kPart = 512;  // groups that stay in the first cache
  for (int64_t first = 0; first < n; first += kPart)
    for (int64_t k = 0; k < group.extent; ++k)
      copy_row(dst + first * dst_step + k * group.stride[0], dst_step,
               src + first * src_step + k * group.stride[1], src_step, std::min(kPart, n - first));
}

// The same as copy_rows() where rows are short: the next axis is walked for each of their elements.
template <typename W>
void copy_short_rows(W* dst, const W* src, Nest<2> nest, int threads) {
  constexpr int64_t kPiece = 4096;  // rows a unit at most
  const LoopAxis<2> group = nest.back(), line = nest[nest.size() - 2];
  nest.resize(nest.size() - 2);
  const int64_t pieces = (line.extent + kPiece - 1) / kPiece;
  const int64_t unit_bytes =
      std::min(line.extent, kPiece) * group.extent * int64_t{sizeof(W)};
  const auto body = [&](int64_t begin, int64_t end, int) {
    Walk<2> walk(nest, begin / pieces);
    int64_t piece = begin % pieces;
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t first = piece * kPiece, n = std::min(kPiece, line.extent - first);
      copy_groups(dst + walk.offset[0] + first * line.stride[0], line.stride[0],
                  src + walk.offset[1] + first * line.stride[1], line.stride[1], n, group);
      if (++piece == pieces) {
        piece = 0;
        walk.next();
      }
    }
  };
  parallel_for(threads, count(nest) * pieces, kBytesPerThread / unit_bytes, body);
}

// Copies over `row`, where dst is dense, and `column`, where src is, tile by tile through a buffer,
// so that every cache line is touched once whatever the strides.
template <typename W>
void copy_tiles(W* dst, const W* src, const Nest<2>& outer, const LoopAxis<2>& column,
                const LoopAxis<2>& row, int threads) {
  constexpr int64_t kRow = 64, kColumn = 64 / sizeof(W);
  const int64_t n_row = (row.extent + kRow - 1) / kRow;
  const int64_t n_column = (column.extent + kColumn - 1) / kColumn;
  const auto body = [&](int64_t begin, int64_t end, int) {
    W buffer[kRow][kColumn];
    Walk<2> walk(outer, 0);
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t c0 = unit % n_column * kColumn, r0 = unit / n_column % n_row * kRow;
      if (unit == begin || (r0 == 0 && c0 == 0)) walk.seek(unit / n_row / n_column);
      const int64_t n = std::min(kRow, row.extent - r0);
      const int64_t width = std::min(kColumn, column.extent - c0);
      const W* s = src + walk.offset[1] + c0 * column.stride[1] + r0 * row.stride[1];
      W* d = dst + walk.offset[0] + c0 * column.stride[0] + r0 * row.stride[0];
      if (row.stride[0] == 1 && column.stride[1] == 1) {
        transpose_rows(d, column.stride[0], s, row.stride[1], n, width);
        continue;
      }
      for (int64_t r = 0; r < n; ++r)
        copy_row(buffer[r], 1, s + r * row.stride[1], column.stride[1], width);
      for (int64_t c = 0; c < width; ++c)
        copy_row(d + c * column.stride[0], row.stride[0], &buffer[0][c], kColumn, n);
    }
  };
  constexpr int64_t kTileBytes = kRow * kColumn * int64_t{sizeof(W)};
  parallel_for(threads, count(outer) * n_row * n_column, kBytesPerThread / kTileBytes, body);
}

// The axis to tile with the innermost one: where src is denser than there. -1: none.
int transposed_axis(const Nest<2>& nest) {
  int best = -1;
  for (size_t a = 0; a + 1 < nest.size(); ++a) {
    const int64_t stride = std::abs(nest[a].stride[1]);
    const int64_t least =
        std::abs(best < 0 ? nest.back().stride[1] : nest[static_cast<size_t>(best)].stride[1]);
    if (stride != 0 && stride < least && nest[a].extent >= 4) best = static_cast<int>(a);
  }
  return best;
}

template <typename W>
void copy_typed(W* dst, const W* src, Nest<2>& nest, int threads) {
  constexpr int64_t kShort = 8;  // elements of a row
  const bool has_short_rows = nest.size() > 1 && nest.back().extent <= kShort &&
                              nest[nest.size() - 2].extent > nest.back().extent;
  const int transposed = transposed_axis(nest);
  if (has_short_rows && (transposed < 0 || nest.back().extent < 4))
    return copy_short_rows(dst, src, std::move(nest), threads);
  if (transposed < 0) return copy_rows(dst, src, std::move(nest), threads);
  const LoopAxis<2> row = nest.back(), column = nest[static_cast<size_t>(transposed)];
  nest.pop_back();
  nest.erase(nest.begin() + transposed);
  copy_tiles(dst, src, nest, column, row, threads);
}

Nest<1> nest_of(const TensorView& view) {
  Nest<1> nest;
  for (size_t a = 0; a < view.dims.size(); ++a) add_axis(nest, view.dims[a], {view.strides[a]});
  merge(nest);
  return nest;
}

// One nest for two shapes of as many elements; false when their axes do not divide one another.
bool common_nest(Nest<1> dst, Nest<1> src, Nest<2>& nest) {
  while (!dst.empty() && !src.empty()) {
    LoopAxis<1>&d = dst.back(), &s = src.back();
    const int64_t n = std::min(d.extent, s.extent);
    if (std::max(d.extent, s.extent) % n != 0) return false;
    nest.insert(nest.begin(), LoopAxis<2>{n, {d.stride[0], s.stride[0]}});
    const auto take = [n](Nest<1>& from) {
      LoopAxis<1>& axis = from.back();
      axis = {axis.extent / n, {axis.stride[0] * n}};
      if (axis.extent == 1) from.pop_back();
    };
    take(dst);
    take(src);
  }
  return true;
}

template <typename W>
void copy_by_runs(W* dst, const Nest<1>& dst_nest, const W* src, const Nest<1>& src_nest,
                  int threads) {
  const auto body = [&](int64_t begin, int64_t end, int) {
    Walk<1> d(dst_nest, begin), s(src_nest, begin);
    while (begin < end) {
      const int64_t n = std::min({d.run(), s.run(), end - begin});
      copy_row(dst + d.offset[0], dst_nest.back().stride[0], src + s.offset[0],
               src_nest.back().stride[0], n);
      d.advance(n);
      s.advance(n);
      begin += n;
    }
  };
  parallel_for(threads, count(dst_nest), kBytesPerThread / int64_t{sizeof(W)}, body);
}

}  // namespace

void copy_nest(std::byte* dst, const std::byte* src, Nest<2> nest, int64_t width, int threads) {
  if (count(nest) == 0) return;
  bool same = dst == src;
  for (const auto& axis : nest) same = same && axis.stride[0] == axis.stride[1];
  if (same) return;
  sort_by_stride(nest, 0);
  merge(nest);
  with_width(width, [&](auto w) {
    using W = decltype(w);
    copy_typed(reinterpret_cast<W*>(dst), reinterpret_cast<const W*>(src), nest, threads);
  });
}

void copy_small(std::byte* dst, const std::byte* src, const Nest<2>& nest, int64_t width) {
  with_width(width, [&](auto w) {
    using W = decltype(w);
    auto* d = reinterpret_cast<W*>(dst);
    auto* s = reinterpret_cast<const W*>(src);
    if (nest.empty()) {
      *d = *s;
    } else if (nest.size() == 1) {
      copy_row(d, nest[0].stride[0], s, nest[0].stride[1], nest[0].extent);
    } else {
      Walk<2> walk(nest, 0);
      for (int64_t left = count(nest); left > 0; left -= nest.back().extent) {
        copy_row(d + walk.offset[0], nest.back().stride[0], s + walk.offset[1],
                 nest.back().stride[1], nest.back().extent);
        walk.advance(nest.back().extent);
      }
    }
  });
}

void fill(const TensorView& dst, const std::byte* element, int threads) {
  Nest<2> nest;
  for (size_t a = 0; a < dst.dims.size(); ++a) add_axis(nest, dst.dims[a], {dst.strides[a], 0});
  copy_nest(dst.data, element, std::move(nest), dtype_bytes(dst.dtype), threads);
}

void copy_reshaped(const TensorView& src, const TensorView& dst, int threads) {
  if (dst.elems() == 0) return;
  const Nest<1> d = nest_of(dst), s = nest_of(src);
  Nest<2> nest;
  if (common_nest(d, s, nest))
    return copy_nest(dst.data, src.data, std::move(nest), dtype_bytes(dst.dtype), threads);
  with_width(dtype_bytes(dst.dtype), [&](auto w) {
    using W = decltype(w);
    copy_by_runs(reinterpret_cast<W*>(dst.data), d, reinterpret_cast<const W*>(src.data), s,
                 threads);
  });
}

TensorView window(const TensorView& view, const Dims& starts, const Dims& sizes) {
  TensorView part = view;
  part.dims = sizes;
  int64_t offset = 0;
  for (size_t a = 0; a < starts.size(); ++a) offset += starts[a] * view.strides[a];
  if (view.data != nullptr) part.data += offset * dtype_bytes(view.dtype);
  return part;
}

}  // namespace stow::cpu::kernels

namespace stow::cpu {

void copy(const TensorView& src, const TensorView& dst, int threads) {
  kernels::Nest<2> nest;
  for (size_t a = 0; a < dst.dims.size(); ++a)
    kernels::add_axis(nest, dst.dims[a], {dst.strides[a], src.strides[a]});
  kernels::copy_nest(dst.data, src.data, std::move(nest), dtype_bytes(dst.dtype), threads);
}

}  // namespace stow::cpu
