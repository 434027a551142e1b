// Scatters, deterministic: a destination element belongs to one thread, which takes its updates in
// row-major order of the index vectors.
#include <cstring>
#include <limits>
#include <type_traits>

#include "stowage/base/bytes.h"
#include "stowage/runtime/cpu/kernels/fold_rows.h"
#include "stowage/runtime/cpu/kernels/index_windows.h"
#include "stowage/runtime/cpu/kernels/op_families.h"
#include "stowage/runtime/cpu/kernels/op_kernels.h"
#include "stowage/runtime/cpu/kernels/parallel_for.h"

namespace stow::cpu::kernels {
namespace {

// Windows are equal or disjoint: no indexed axis has a window of more than one element. Then the
// indexed axes form rows of the destination, and f16 and bf16 can be summed row by row.
bool has_rows(const GatherParams& params) {
  for (int64_t a : params.start_index_map)
    if (params.slice_sizes[static_cast<size_t>(a)] != 1) return false;
  return true;
}

int64_t count_vectors(const GatherParams& params, const TensorView& updates) {
  int64_t n = 1;
  for (size_t a = 0; a < updates.dims.size(); ++a)
    if (!contains(params.offset_axes, a)) n *= updates.dims[a];
  return n;
}

// The axes of the operand that say which row a window is of.
Dims row_axes(const GatherParams& params) {
  Dims axes = params.batch_axes;
  axes.insert(axes.end(), params.start_index_map.begin(), params.start_index_map.end());
  return axes;
}

int64_t count_rows(const GatherParams& params, const TensorView& operand) {
  int64_t n = 1;
  for (int64_t a : row_axes(params)) n *= operand.dims[static_cast<size_t>(a)];
  return n;
}

int64_t window_elems(const GatherParams& params) {
  int64_t n = 1;
  for (int64_t size : params.slice_sizes) n *= size;
  return n;
}

// The effect of an update u on an element.
struct Set {
  template <typename T>
  static void apply(T& t, T u) {
    t = u;
  }
};
template <typename F>
struct Folded {
  static constexpr OpKind kOp = F::kOp;
  template <typename T, typename U>
  static void apply(T& t, U u) {
    store<T>(F::apply(load(t), static_cast<Acc<T>>(load(u))), t);
  }
};
struct Sum {
  static constexpr OpKind kOp = OpKind::kScatterAdd;
  template <typename A>
  static A apply(A a, A b) {
    return add(a, b);
  }
};
struct Product {
  static constexpr OpKind kOp = OpKind::kScatterMul;
  template <typename A>
  static A apply(A a, A b) {
    return mul(a, b);
  }
};
struct Smallest {
  static constexpr OpKind kOp = OpKind::kScatterMin;
  template <typename A>
  static A apply(A a, A b) {
    return minimum(a, b);
  }
};
struct Largest {
  static constexpr OpKind kOp = OpKind::kScatterMax;
  template <typename A>
  static A apply(A a, A b) {
    return maximum(a, b);
  }
};

// Updates a row of n elements; strides in elements.
template <typename F, typename T, typename U>
void update_row(T* to, int64_t to_stride, const U* from, int64_t from_stride, int64_t n) {
  if (to_stride == 1 && from_stride == 1)
    for (int64_t i = 0; i < n; ++i) F::apply(to[i], from[i]);
  else
    for (int64_t i = 0; i < n; ++i) F::apply(to[i * to_stride], from[i * from_stride]);
}

// The same by address, so that the loops around rows are compiled once.
using UpdateRow = void (*)(std::byte* to, int64_t to_stride, const std::byte* from,
                           int64_t from_stride, int64_t n);
template <typename F, typename T, typename U>
void update_row_at(std::byte* to, int64_t to_stride, const std::byte* from, int64_t from_stride,
                   int64_t n) {
  update_row<F>(reinterpret_cast<T*>(to), to_stride, reinterpret_cast<const U*>(from), from_stride,
                n);
}

// The kernel of dense rows; null where update_row() serves.
template <typename F, typename T, typename U>
FoldRowKernel dense_kernel(DType dtype) {
  if constexpr (std::is_same_v<T, U> && requires { F::kOp; })
    return fold_row_kernel(F::kOp, dtype);
  else
    return nullptr;
}

// The operand's axis along which threads own it: one that is not indexed where its share a thread
// fills a cache line, else the longest indexed one. Never a batch axis: index vectors do not tell
// the place along it.
int64_t owned_axis(const GatherParams& params, const TensorView& y, int threads) {
  int64_t column = -1, row = -1;
  for (size_t a = 0; a < y.dims.size(); ++a) {
    if (contains(params.batch_axes, a)) continue;
    int64_t& best = contains(params.start_index_map, a) ? row : column;
    if (best < 0 || y.dims[a] > y.dims[static_cast<size_t>(best)]) best = static_cast<int64_t>(a);
  }
  const bool wide = column >= 0 && y.dims[static_cast<size_t>(column)] >= 16 * threads;
  return wide || row < 0 ? column : row;
}

// An element is rounded at every update, so the destination is of no half type where that loses
// anything.
void scatter_direct(const GatherParams& params, const TensorView& y, const TensorView& indices,
                    const TensorView& updates, UpdateRow update, FoldRowKernel dense, int threads) {
  const IndexVectors vectors(params, y, indices, updates);
  const int64_t owned = owned_axis(params, y, threads);
  // The window's loops; the owned axis stays apart, for its range differs by thread and update.
  std::vector<WindowAxis> axes = window_axes(params, y, updates);
  std::stable_sort(axes.begin(), axes.end(), [](const auto& a, const auto& b) {
    return std::abs(a.loop.stride[1]) > std::abs(b.loop.stride[1]);
  });
  Nest<2> window, run;
  int64_t owned_at = -1, owned_size = 1;
  for (const WindowAxis& axis : axes) {
    if (axis.axis != owned) {
      add_axis(run, axis.loop.extent, axis.loop.stride);
      continue;
    }
    merge(run);
    window.insert(window.end(), run.begin(), run.end());
    run.clear();
    owned_at = static_cast<int64_t>(window.size());
    owned_size = axis.loop.extent;
    window.push_back(axis.loop);
  }
  merge(run);
  window.insert(window.end(), run.begin(), run.end());
  int64_t owned_component = -1, owned_stride = 0;
  for (size_t k = 0; k < vectors.components().size(); ++k)
    if (vectors.components()[k].axis == owned) owned_component = static_cast<int64_t>(k);
  if (owned_at >= 0) owned_stride = window[static_cast<size_t>(owned_at)].stride[0];

  const int64_t to_bytes = dtype_bytes(y.dtype), from_bytes = dtype_bytes(updates.dtype);
  const int64_t n_vectors = count(vectors.nest);
  const int64_t extent = owned < 0 ? 1 : y.dims[static_cast<size_t>(owned)];
  const int64_t bytes = updates.elems() * to_bytes;
  const int64_t useful = std::clamp<int64_t>(bytes / kBytesPerThread, 1, threads);
  parallel_for(static_cast<int>(useful), extent, 1, [&](int64_t low, int64_t high, int) {
    Walk<3> vector(vectors.nest, 0);
    Nest<2> part(window);
    if (part.empty()) part.push_back({1, {1, 1}});
    Walk<2> walk(part, 0);
    for (int64_t v = 0; v < n_vectors; ++v, vector.next()) {
      if (!vectors.in_range(vector.offset[1])) continue;
      const int64_t start =
          owned_component < 0
              ? 0
              : vectors.start(vector.offset[1], static_cast<size_t>(owned_component));
      const int64_t first = std::max(low, start), last = std::min(high, start + owned_size);
      if (owned >= 0 && first >= last) continue;
      int64_t skip_to = 0, skip_from = 0;
      if (owned_at >= 0) {
        LoopAxis<2>& axis = part[static_cast<size_t>(owned_at)];
        axis.extent = last - first;
        skip_to = (first - start) * axis.stride[1];
        skip_from = (first - start) * owned_stride;
      }
      std::byte* const base = y.data + (vectors.clamped(vector.offset) + skip_to) * to_bytes;
      const std::byte* const source = updates.data + (vector.offset[0] + skip_from) * from_bytes;
      const LoopAxis<2>& row = part.back();
      const bool is_dense = dense != nullptr && row.stride[0] == 1 && row.stride[1] == 1;
      walk.seek(0);
      for (int64_t left = count(part); left > 0; left -= row.extent) {
        std::byte* const to = base + walk.offset[1] * to_bytes;
        const std::byte* const from = source + walk.offset[0] * from_bytes;
        if (is_dense)
          dense(to, from, row.extent);
        else
          update(to, row.stride[1], from, row.stride[0], row.extent);
        walk.advance(row.extent);
      }
    }
  });
}

// Half types where windows form rows: lists of the updates of each row, in order, then each row is
// summed in f32 and rounded once. Scratch: int32 head[rows], next[vectors].
template <typename T>
void scatter_rows(const GatherParams& params, const TensorView& y, const TensorView& indices,
                  const TensorView& updates, std::byte* scratch, int threads) {
  const IndexVectors vectors(params, y, indices, updates);
  // Rows are numbered as an array of the axes that tell them apart.
  const Dims axes = row_axes(params);
  TensorView numbers = y;
  numbers.strides.assign(y.dims.size(), 0);
  int64_t rows = 1;
  for (size_t k = axes.size(); k-- > 0;) {
    const auto axis = static_cast<size_t>(axes[k]);
    numbers.strides[axis] = rows;
    rows *= y.dims[axis];
  }
  const IndexVectors numbered(params, numbers, indices, updates);
  Nest<2> window;
  for (const WindowAxis& axis : window_axes(params, y, updates))
    add_axis(window, axis.loop.extent, axis.loop.stride);
  sort_by_stride(window, 1);
  merge(window);
  if (window.empty()) window.push_back({1, {1, 1}});
  const LoopAxis<2> line = window.back();
  window.pop_back();

  const int64_t n = count(vectors.nest);
  STOW_CHECK(n < std::numeric_limits<int32_t>::max(), "{} index vectors", n);
  auto* head = reinterpret_cast<int32_t*>(scratch);
  auto* next = reinterpret_cast<int32_t*>(scratch + align_up(rows * 4, 64));
  parallel_for(threads, rows, 4096, [&](int64_t low, int64_t high, int) {
    std::fill(head + low, head + high, -1);
    Walk<3> walk(numbered.nest, 0);
    for (int64_t v = n; v-- > 0;) {  // backwards: the first update ends up at the head
      walk.seek(v);
      if (!numbered.in_range(walk.offset[1])) continue;
      const int64_t row = numbered.clamped(walk.offset);
      if (row < low || row >= high) continue;
      next[v] = head[row];
      head[row] = static_cast<int32_t>(v);
    }
  });

  T* to = reinterpret_cast<T*>(y.data);
  const T* from = reinterpret_cast<const T*>(updates.data);
  constexpr int64_t kPiece = 1024;
  const int64_t pieces = (line.extent + kPiece - 1) / kPiece, lines = count(window);
  const int64_t grain = kBytesPerThread / (lines * std::min(line.extent, kPiece) * 2 + 1);
  parallel_for(threads, rows * pieces, grain, [&](int64_t begin, int64_t end, int) {
    float sum[kPiece];
    Walk<2> inner(window, 0);
    Walk<3> walk(vectors.nest, 0);
    for (int64_t unit = begin; unit < end; ++unit) {
      // Pieces outermost: threads share the columns of rows that many updates go to.
      const int64_t row = unit % rows, first = unit / rows * kPiece;
      if (head[row] < 0) continue;
      int64_t offset = 0, rest = row;
      for (size_t k = axes.size(); k-- > 0;) {
        const auto axis = static_cast<size_t>(axes[k]);
        offset += rest % y.dims[axis] * y.strides[axis];
        rest /= y.dims[axis];
      }
      const int64_t length = std::min(kPiece, line.extent - first);
      inner.seek(0);
      for (int64_t l = 0; l < lines; ++l, inner.next()) {
        T* t = to + offset + inner.offset[1] + first * line.stride[1];
        for (int64_t i = 0; i < length; ++i) sum[i] = widen(t[i * line.stride[1]]);
        for (int32_t v = head[row]; v >= 0; v = next[v]) {
          walk.seek(v);
          update_row<Folded<Sum>>(sum, 1,
                                  from + walk.offset[0] + inner.offset[0] + first * line.stride[0],
                                  line.stride[0], length);
        }
        for (int64_t i = 0; i < length; ++i) narrow(sum[i], t[i * line.stride[1]]);
      }
    }
  });
}

// The places that count: those of [first, first + n).
struct PlaceRange {
  uint32_t first = 0, n = std::numeric_limits<uint32_t>::max();
};

// Updates element place[i] of `to` with element source[i] of `from`, in order; where `source` is
// null, with the i-th if the place is in `range`. from_step counts elements.
using UpdatePlaces = void (*)(std::byte* to, const int32_t* place, const std::byte* from,
                              int64_t from_step, const int32_t* source, int64_t n,
                              PlaceRange range);
template <typename F, typename T, typename U>
void update_places(std::byte* to_bytes, const int32_t* place, const std::byte* from_bytes,
                   int64_t from_step, const int32_t* source, int64_t n, PlaceRange range) {
  T* const to = reinterpret_cast<T*>(to_bytes);
  const U* const from = reinterpret_cast<const U*>(from_bytes);
  if (source == nullptr)
    for (int64_t i = 0; i < n; ++i) {
      const auto at = static_cast<uint32_t>(place[i]);
      if (at - range.first < range.n) F::apply(to[at], from[i * from_step]);
    }
  else
    for (int64_t i = 0; i < n; ++i)
      F::apply(to[static_cast<size_t>(place[i])], from[source[i] * from_step]);
}

// A line of index vectors with the elements that they lead to; addresses are those of the first,
// steps count elements.
struct ScatterLine {
  std::byte* to;
  int64_t to_step, to_bytes;
  const std::byte* from;
  int64_t from_step, from_bytes;
  const std::byte* index;
  int64_t index_step;
  int64_t n;
};

// Updates of a line that fall into rows [low, high) of the first component's axis. Where they go is
// found for a part of the line at a time, so that the loops that update know nothing of indices.
template <typename I>
void update_line(const ScatterLine& line, const IndexVectors& vectors, int64_t low, int64_t high,
                 UpdatePlaces update) {
  const auto& components = vectors.components();
  const bool fits_in_32_bits = offsets_fit_in_32_bits(components, line.to_step);
  const bool is_plain = fits_in_32_bits && components.size() == 1 && line.index_step == 1;
  const int64_t stride = components[0].stride;
  // Indices that are the places themselves are looked at once, in the loop that updates.
  if constexpr (std::is_same_v<I, int32_t>)
    if (is_plain && line.to_step == 0 && stride == 1)
      return update(line.to, reinterpret_cast<const int32_t*>(line.index), line.from,
                    line.from_step, nullptr, line.n,
                    {static_cast<uint32_t>(low), static_cast<uint32_t>(high - low)});
  for (int64_t begin = 0; begin < line.n; begin += kIndexChunk) {
    const int64_t n = std::min(kIndexChunk, line.n - begin);
    const I* const index = reinterpret_cast<const I*>(line.index) + begin * line.index_step;
    std::byte* const to = line.to + begin * line.to_step * line.to_bytes;
    const std::byte* const from = line.from + begin * line.from_step * line.from_bytes;
    int32_t places[kIndexChunk], sources[kIndexChunk];
    if (is_plain && all_in_range(index, n, low, high - 1)) {
      update(to, find_offsets(index, n, line.to_step, stride, places), from, line.from_step,
             nullptr, n, {});
      continue;
    }
    int64_t kept = 0;
    for (int64_t i = 0; i < n; ++i) {
      const I* const vector = index + i * line.index_step;
      int64_t place = i * line.to_step;
      bool within = true;
      for (size_t k = 0; k < components.size(); ++k) {
        const int64_t start =
            as_start(vector[static_cast<int64_t>(k) * vectors.component_stride()]);
        within = within && start >= (k == 0 ? low : 0) &&
                 start <= (k == 0 ? high - 1 : components[k].last_start);
        if (within) place += start * components[k].stride;
      }
      if (!fits_in_32_bits) {
        const int32_t here = 0;
        if (within)
          update(to + place * line.to_bytes, &here, from + i * line.from_step * line.from_bytes,
                 line.from_step, nullptr, 1, {});
        continue;
      }
      places[kept] = static_cast<int32_t>(place);
      sources[kept] = static_cast<int32_t>(i);
      kept += within ? 1 : 0;
    }
    update(to, places, from, line.from_step, sources, kept, {});
  }
}

// Scatters element after element of the window, each for all index vectors in order: for windows
// that form short rows, or updates that are denser along the index vectors. Threads share the
// elements of the window if these are many, else the rows of the first component's axis.
void scatter_elements(const GatherParams& params, const TensorView& y, const TensorView& indices,
                      const TensorView& updates, UpdatePlaces update, int threads) {
  const IndexVectors vectors(params, y, indices, updates);
  Nest<2> window;
  for (const WindowAxis& axis : window_axes(params, y, updates))
    add_axis(window, axis.loop.extent, axis.loop.stride);
  Nest<3> lines = vectors.nest;
  const LoopAxis<3> line = lines.empty() ? LoopAxis<3>{} : lines.back();
  if (!lines.empty()) lines.pop_back();
  const int64_t to_bytes = dtype_bytes(y.dtype), from_bytes = dtype_bytes(updates.dtype);
  const int64_t index_bytes = dtype_bytes(indices.dtype);
  const int64_t n_lines = count(lines), n_elements = count(window);
  const int64_t rows = vectors.components()[0].extent;
  const int64_t useful =
      std::clamp<int64_t>(updates.elems() * to_bytes / kBytesPerThread, 1, threads);
  const bool by_rows = n_elements < useful;
  const std::byte* const index = vectors.data();
  parallel_for(
      static_cast<int>(useful), by_rows ? rows : n_elements, 1,
      [&](int64_t begin, int64_t end, int) {
        const int64_t low = by_rows ? begin : 0, high = by_rows ? end : rows;
        const int64_t last = by_rows ? n_elements : end;
        Walk<2> inside(window, by_rows ? 0 : begin);
        for (int64_t e = by_rows ? 0 : begin; e < last; ++e, inside.next()) {
          Walk<3> walk(lines, 0);
          for (int64_t l = 0; l < n_lines; ++l, walk.next()) {
            const ScatterLine at = {
                .to = y.data + (inside.offset[1] + walk.offset[2]) * to_bytes,
                .to_step = line.stride[2],
                .to_bytes = to_bytes,
                .from = updates.data + (inside.offset[0] + walk.offset[0]) * from_bytes,
                .from_step = line.stride[0],
                .from_bytes = from_bytes,
                .index = index + walk.offset[1] * index_bytes,
                .index_step = line.stride[1],
                .n = line.extent};
            with_index(indices.dtype, [&](auto i) {
              update_line<decltype(i)>(at, vectors, low, high, update);
            });
          }
        }
      });
}

bool goes_by_elements(const GatherParams& params, const TensorView& y, const TensorView& indices,
                      const TensorView& updates) {
  if (params.start_index_map.empty() || !has_rows(params)) return false;
  const IndexVectors vectors(params, y, indices, updates);
  Nest<2> window;
  for (const WindowAxis& axis : window_axes(params, y, updates))
    add_axis(window, axis.loop.extent, axis.loop.stride);
  if (window.empty()) return true;
  if (vectors.nest.empty()) return false;
  sort_by_stride(window, 0);
  const LoopAxis<3>& line = vectors.nest.back();
  return line.stride[0] != 0 && std::abs(line.stride[0]) < std::abs(window.back().stride[0]) &&
         line.extent >= 8;
}

template <typename F, typename T, typename U>
void scatter_typed(const GatherParams& params, const TensorView& y, const TensorView& indices,
                   const TensorView& updates, int threads) {
  if (goes_by_elements(params, y, indices, updates))
    return scatter_elements(params, y, indices, updates, update_places<F, T, U>, threads);
  scatter_direct(params, y, indices, updates, update_row_at<F, T, U>,
                 dense_kernel<F, T, U>(y.dtype), threads);
}

// Half types where windows overlap in part or are single elements: the whole destination in f32.
template <typename F, typename T>
void scatter_through_f32(const GatherParams& params, const TensorView& y, const TensorView& indices,
                         const TensorView& updates, std::byte* scratch, int threads) {
  TensorView wide{scratch, DType::kF32, y.dims, contiguous_strides(Shape(y.dims))};
  Nest<2> nest;
  for (size_t a = 0; a < y.dims.size(); ++a)
    add_axis(nest, y.dims[a], {y.strides[a], wide.strides[a]});
  merge(nest);
  T* narrow_data = reinterpret_cast<T*>(y.data);
  auto* wide_data = reinterpret_cast<float*>(scratch);
  const auto each = [&](const auto& f) {
    parallel_for(threads, y.elems(), kBytesPerThread / 4, [&](int64_t begin, int64_t end, int) {
      Walk<2> walk(nest, begin);
      for (int64_t i = begin; i < end; ++i, walk.next())
        f(narrow_data[walk.offset[0]], wide_data[walk.offset[1]]);
    });
  };
  each([](const T& x, float& w) { w = widen(x); });
  scatter_typed<F, float, T>(params, wide, indices, updates, threads);
  each([](T& x, float w) { narrow(w, x); });
}

bool is_half(DType t) {
  return t == DType::kBF16 || t == DType::kF16;
}

}  // namespace

int64_t scatter_scratch_bytes(OpKind op, const GatherParams& params, Views in, Views out) {
  const TensorView &y = out[0], &updates = in[2];
  if (op != OpKind::kScatterAdd && op != OpKind::kScatterMul) return 0;
  if (!is_half(y.dtype) || y.elems() == 0 || updates.elems() == 0) return 0;
  if (op == OpKind::kScatterMul || !has_rows(params) || window_elems(params) == 1)
    return align_up(y.elems() * 4, 64);
  return align_up(count_rows(params, y) * 4, 64) + align_up(count_vectors(params, updates) * 4, 64);
}

void scatter(OpKind op, const GatherParams& params, Views in, Views out, void* scratch,
             int threads) {
  const TensorView &y = out[0], &indices = in[1], &updates = in[2];
  copy(in[0], y, threads);  // nothing to do when they are one
  if (y.elems() == 0 || updates.elems() == 0) return;
  auto* bytes = static_cast<std::byte*>(scratch);
  const auto direct = [&](auto f, auto t) {
    using T = decltype(t);
    scatter_typed<decltype(f), T, T>(params, y, indices, updates, threads);
  };
  if (op == OpKind::kScatter) {
    switch (dtype_bytes(y.dtype)) {
      case 1:
        return direct(Set(), uint8_t{});
      case 2:
        return direct(Set(), uint16_t{});
      case 4:
        return direct(Set(), uint32_t{});
      default:
        return direct(Set(), uint64_t{});
    }
  }
  with_dtype(y.dtype, [&](auto t) {
    using T = decltype(t);
    if (op == OpKind::kScatterMin) return direct(Folded<Smallest>(), t);
    if (op == OpKind::kScatterMax) return direct(Folded<Largest>(), t);
    if constexpr (kIsHalf<T>) {
      if (op == OpKind::kScatterMul)
        scatter_through_f32<Folded<Product>, T>(params, y, indices, updates, bytes, threads);
      else if (has_rows(params) && window_elems(params) != 1)
        scatter_rows<T>(params, y, indices, updates, bytes, threads);
      else
        scatter_through_f32<Folded<Sum>, T>(params, y, indices, updates, bytes, threads);
    } else if (op == OpKind::kScatterMul) {
      direct(Folded<Product>(), t);
    } else {
      direct(Folded<Sum>(), t);
    }
  });
}

}  // namespace stow::cpu::kernels
