#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "stowage/runtime/cpu/kernels/index_windows.h"
#include "stowage/runtime/cpu/kernels/op_families.h"
#include "stowage/runtime/cpu/kernels/parallel_for.h"

namespace stow::cpu::kernels {
namespace {

// to[i] = from[i * from_step + index[i] * stride], of indices in range. Several loads stand
// together, so that many wait for memory at the same time.
template <typename W, typename I>
void read_within(W* to, int64_t to_step, const W* from, int64_t from_step, const I* index,
                 int64_t stride, int64_t n) {
  constexpr int64_t kTogether = 8;
  int64_t i = 0;
  const auto read_groups = [&](auto place) {
    for (; i + kTogether <= n; i += kTogether) {
      W read[kTogether];
      for (int64_t k = 0; k < kTogether; ++k) read[k] = from[place(i + k)];
      for (int64_t k = 0; k < kTogether; ++k) to[i + k] = read[k];
    }
  };
  const auto place = [&](int64_t k) { return k * from_step + as_start(index[k]) * stride; };
  if (to_step == 1 && from_step == 0 && stride == 1)
    read_groups([&](int64_t k) { return as_start(index[k]); });
  else if (to_step == 1)
    read_groups(place);
  for (; i < n; ++i) to[i * to_step] = from[place(i)];
}

// to[i] = from[place of index vector i], or `filling` if there is one and the place is out of
// range, for the vectors of a line.
template <typename W, typename I>
void read_line(W* to, int64_t to_step, const W* from, int64_t from_step, const I* index,
               int64_t index_step, int64_t n, const IndexVectors& vectors, const W* filling) {
  const auto& components = vectors.components();
  if (components.size() == 1) {
    const IndexVectors::Component first = components[0];
    for (int64_t begin = 0; begin < n; begin += kIndexChunk) {
      const int64_t end = std::min(n, begin + kIndexChunk);
      if (index_step == 1 && all_in_range(index + begin, end - begin, 0, first.last_start)) {
        read_within(to + begin * to_step, to_step, from + begin * from_step, from_step,
                    index + begin, first.stride, end - begin);
        continue;
      }
      for (int64_t i = begin; i < end; ++i) {
        const int64_t given = as_start(index[i * index_step]);
        const int64_t start = std::clamp<int64_t>(given, 0, first.last_start);
        to[i * to_step] = start == given || filling == nullptr
                              ? from[i * from_step + start * first.stride]
                              : *filling;
      }
    }
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    int64_t place = i * from_step;
    bool within = true;
    for (size_t k = 0; k < components.size(); ++k) {
      const int64_t at = i * index_step + static_cast<int64_t>(k) * vectors.component_stride();
      const int64_t given = as_start(index[at]);
      const int64_t start = std::clamp<int64_t>(given, 0, components[k].last_start);
      within = within && start == given;
      place += start * components[k].stride;
    }
    to[i * to_step] = within || filling == nullptr ? from[place] : *filling;
  }
}

// Element after element of the window, each for line after line of the index vectors.
template <typename W, typename I>
void gather_elements(const IndexVectors& vectors, const Nest<2>& slice, const TensorView& operand,
                     const TensorView& y, const std::byte* filling, int threads) {
  Nest<3> lines = vectors.nest;
  const LoopAxis<3> line = lines.empty() ? LoopAxis<3>{} : lines.back();
  if (!lines.empty()) lines.pop_back();
  const int64_t n_lines = count(lines);
  const W* from = reinterpret_cast<const W*>(operand.data);
  const I* index = reinterpret_cast<const I*>(vectors.data());
  W* to = reinterpret_cast<W*>(y.data);
  // Long lines are shared.
  constexpr int64_t kPiece = 16384;
  const int64_t pieces = (line.extent + kPiece - 1) / kPiece;
  const int64_t unit_bytes = std::min(kPiece, line.extent) * int64_t{sizeof(W)};
  parallel_for(threads, count(slice) * n_lines * pieces, kBytesPerThread / unit_bytes,
               [&](int64_t begin, int64_t end, int) {
                 Walk<2> inside(slice, begin / pieces / n_lines);
                 Walk<3> walk(lines, begin / pieces % n_lines);
                 int64_t piece = begin % pieces, at_line = begin / pieces % n_lines;
                 for (int64_t unit = begin; unit < end; ++unit) {
                   const int64_t first = piece * kPiece, n = std::min(kPiece, line.extent - first);
                   read_line(to + inside.offset[0] + walk.offset[0] + first * line.stride[0],
                             line.stride[0],
                             from + inside.offset[1] + walk.offset[2] + first * line.stride[2],
                             line.stride[2], index + walk.offset[1] + first * line.stride[1],
                             line.stride[1], n, vectors, reinterpret_cast<const W*>(filling));
                   if (++piece < pieces) continue;
                   piece = 0;
                   walk.next();
                   if (++at_line < n_lines) continue;
                   at_line = 0;
                   inside.next();
                 }
               });
}

// True if the result is denser along the index vectors than along the window, or if windows are
// short.
bool goes_by_elements(const IndexVectors& vectors, const Nest<2>& slice) {
  if (vectors.components().empty()) return false;
  if (count(slice) == 1) return true;
  if (vectors.nest.empty()) return false;
  const LoopAxis<3>& line = vectors.nest.back();
  return std::abs(line.stride[0]) < std::abs(slice.back().stride[0]) && line.extent >= 8;
}

}  // namespace

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
  const int64_t width = dtype_bytes(y.dtype);
  const std::byte* filling = in.size() == 3 ? in[2].data : nullptr;
  if (goes_by_elements(vectors, slice))
    return with_width(width, [&](auto w) {
      with_index(in[1].dtype, [&](auto i) {
        gather_elements<decltype(w), decltype(i)>(vectors, slice, operand, y, filling, threads);
      });
    });
  if (slice.empty()) slice.push_back({1, {1, 1}});

  // Few index vectors and many threads: the window's outer axis is cut too.
  const int64_t n_vectors = count(vectors.nest), outer = slice[0].extent;
  const int64_t pieces = n_vectors >= 4 * threads
                             ? 1
                             : std::min<int64_t>(outer, (4 * threads + n_vectors - 1) / n_vectors);
  const int64_t unit_bytes = std::max<int64_t>(count(slice) * width / pieces, 1);
  const bool is_row = slice.size() == 1 && slice[0].stride[0] == 1 && slice[0].stride[1] == 1;
  parallel_for(
      threads, n_vectors * pieces, kBytesPerThread / unit_bytes,
      [&](int64_t begin, int64_t end, int) {
        Walk<3> walk(vectors.nest, begin / pieces);
        Nest<2> part(slice), same(slice);  // `same` reads one element all over
        for (LoopAxis<2>& axis : same) axis.stride[1] = 0;
        int64_t piece = begin % pieces;
        for (int64_t unit = begin; unit < end; ++unit) {
          const int64_t first = outer * piece / pieces, last = outer * (piece + 1) / pieces;
          part[0].extent = last - first;
          const int64_t to = walk.offset[0] + first * slice[0].stride[0];
          const int64_t from = vectors.clamped(walk.offset) + first * slice[0].stride[1];
          if (filling != nullptr && !vectors.in_range(walk.offset[1])) {
            same[0].extent = part[0].extent;
            copy_small(y.data + to * width, filling, same, width);
          } else if (is_row)
            std::memcpy(y.data + to * width, operand.data + from * width,
                        static_cast<size_t>((last - first) * width));
          else
            copy_small(y.data + to * width, operand.data + from * width, part, width);
          if (++piece == pieces) {
            piece = 0;
            walk.next();
          }
        }
      });
}

}  // namespace stow::cpu::kernels
