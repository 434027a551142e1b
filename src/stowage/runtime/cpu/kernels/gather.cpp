#include "stowage/runtime/cpu/kernels/index_windows.h"
#include "stowage/runtime/cpu/kernels/op_families.h"
#include "stowage/runtime/cpu/kernels/parallel_for.h"

namespace stow::cpu::kernels {

// A row of an embedding is a window of one dense axis, which copy_small turns into a memcpy.
void gather(const GatherParams& params, Views in, Views out, int threads) {
  const TensorView &operand = in[0], &y = out[0];
  if (y.elems() == 0) return;
  const IndexVectors vectors(params, operand, in[1], y);
  Nest<2> slice;
  for (const WindowAxis& w : window_axes(params, operand, y))
    add_axis(slice, w.loop.extent, w.loop.stride);
  sort_by_stride(slice, 0);
  merge(slice);
  if (slice.empty()) slice.push_back({1, {1, 1}});

  // Few index vectors and many threads: the window's outer axis is cut too.
  const int64_t n_vectors = count(vectors.nest), outer = slice[0].extent;
  const int64_t pieces = n_vectors >= 4 * threads
                             ? 1
                             : std::min<int64_t>(outer, (4 * threads + n_vectors - 1) / n_vectors);
  const int64_t width = dtype_bytes(y.dtype);
  const int64_t unit_bytes = std::max<int64_t>(count(slice) * width / pieces, 1);
  parallel_for(
      threads, n_vectors * pieces, kBytesPerThread / unit_bytes,
      [&](int64_t begin, int64_t end, int) {
        Walk<2> walk(vectors.nest, begin / pieces);
        Nest<2> part(slice);
        int64_t piece = begin % pieces;
        for (int64_t unit = begin; unit < end; ++unit) {
          const int64_t first = outer * piece / pieces, last = outer * (piece + 1) / pieces;
          part[0].extent = last - first;
          const int64_t to = walk.offset[0] + first * slice[0].stride[0];
          const int64_t from = vectors.clamped(walk.offset[1]) + first * slice[0].stride[1];
          copy_small(y.data + to * width, operand.data + from * width, part, width);
          if (++piece == pieces) {
            piece = 0;
            walk.next();
          }
        }
      });
}

}  // namespace stow::cpu::kernels
