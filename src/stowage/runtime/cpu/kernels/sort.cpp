// Sorting lanes: keys become unsigned integers of the same order, paired with their positions, so
// that an unstable sort in place gives the stable order.
#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <utility>

#include "stowage/base/bytes.h"
#include "stowage/runtime/cpu/kernels/op_families.h"
#include "stowage/runtime/cpu/kernels/op_types.h"
#include "stowage/runtime/cpu/kernels/parallel_for.h"

namespace stow::cpu::kernels {
namespace {

// Keys of up to 32 bits lie above their position in one word.
using Narrow = uint64_t;
struct Wide {
  uint64_t key;
  uint64_t position;
  friend bool operator<(const Wide& a, const Wide& b) {
    return a.key != b.key ? a.key < b.key : a.position < b.position;
  }
};

template <typename T>
using Entry = std::conditional_t<sizeof(T) == 8, Wide, Narrow>;

// The order of elements. NaN is the largest.
struct Order {
  bool descending;
  bool signed_zeros;  // -0 comes before 0; else they are equal
};

// Unsigned, ordered as T is in this order.
template <typename T>
auto ordered(T x, Order order) {
  const bool descending = order.descending;
  if constexpr (kIsFloat<T>) {
    using A = Acc<T>;
    using U = std::conditional_t<sizeof(A) == 8, uint64_t, uint32_t>;
    const A value = load(x);
    if (value != value) return descending ? U{0} : ~U{0};
    constexpr U kSign = U{1} << (8 * sizeof(U) - 1);
    const U bits = value == 0 && !order.signed_zeros ? U{0} : std::bit_cast<U>(value);
    const U key = (bits & kSign) != 0 ? ~bits : bits | kSign;
    return descending ? static_cast<U>(~key) : key;
  } else if constexpr (std::is_same_v<T, Bool>) {
    return static_cast<uint32_t>((x.value != 0) != descending);
  } else {
    using U = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
    constexpr U kBias = std::is_signed_v<T> ? U{1} << (8 * sizeof(U) - 1) : U{0};
    const U key = static_cast<U>(x) ^ kBias;
    return descending ? static_cast<U>(~key) : key;
  }
}

int64_t lanes_of(int64_t axis, const TensorView& x) {
  int64_t n = 1;
  for (size_t a = 0; a < x.dims.size(); ++a)
    if (static_cast<int64_t>(a) != axis) n *= x.dims[a];
  return n;
}

int64_t lane_scratch_bytes(int64_t axis, const TensorView& key) {
  const int64_t entry_bytes = dtype_bytes(key.dtype) == 8 ? sizeof(Wide) : sizeof(Narrow);
  return align_up(key.dims[static_cast<size_t>(axis)] * entry_bytes, 64);
}

template <typename E>
int64_t position(const E& entry) {
  if constexpr (std::is_same_v<E, Wide>)
    return static_cast<int64_t>(entry.position);
  else
    return static_cast<int64_t>(entry & 0xffffffffu);
}

// Puts bits in the place of an entry's key.
void replace_key(Narrow& entry, uint64_t bits) { entry = bits << 32 | (entry & 0xffffffffu); }
void replace_key(Wide& entry, uint64_t bits) { entry.key = bits; }
uint64_t key_of(Narrow entry) { return entry >> 32; }
uint64_t key_of(const Wide& entry) { return entry.key; }

// to[i] = from[position of entry i], along one lane. If both are the same memory the entries hold
// the lane in between, in the place of their keys; Level::sort_can_share (passes/lower_level.cpp)
// says when they can.
template <typename E>
void permute(E* entries, int64_t n, const TensorView& from, int64_t from_offset,
             int64_t from_stride, const TensorView& to, int64_t to_offset, int64_t to_stride) {
  const auto move = [&](auto w) {
    using W = decltype(w);
    const W* f = reinterpret_cast<const W*>(from.data) + from_offset;
    W* t = reinterpret_cast<W*>(to.data) + to_offset;
    if (from.data == to.data) {
      for (int64_t i = 0; i < n; ++i)
        replace_key(entries[i], f[position(entries[i]) * from_stride]);
      for (int64_t i = 0; i < n; ++i) t[i * to_stride] = static_cast<W>(key_of(entries[i]));
      return;
    }
    for (int64_t i = 0; i < n; ++i) t[i * to_stride] = f[position(entries[i]) * from_stride];
  };
  switch (dtype_bytes(from.dtype)) {
    case 1:
      return move(uint8_t{});
    case 2:
      return move(uint16_t{});
    case 4:
      return move(uint32_t{});
    default:
      return move(uint64_t{});
  }
}

// Fills a lane's entries in order, orders them by `arrange` and hands them to `emit` with the walks
// over the other axes: operand 0 of walk k is out[k], 1 in[k].
template <typename Arrange, typename Emit>
void for_each_lane(int64_t axis_number, Order order, Views in, Views out, void* scratch,
                   int threads, const Arrange& arrange, const Emit& emit) {
  const TensorView& key = in[0];
  if (key.elems() == 0) return;
  const auto axis = static_cast<size_t>(axis_number);
  const int64_t n = key.dims[axis], lane_bytes = lane_scratch_bytes(axis_number, key);
  // One nest an operand, all in one order, merged nowhere so that they stay in step.
  std::vector<Nest<2>> nests(out.size());
  for (size_t k = 0; k < out.size(); ++k)
    for (size_t a = 0; a < key.dims.size(); ++a)
      if (a != axis)
        add_axis(nests[k], key.dims[a],
                 {out[k].strides[a], in[std::min(k, in.size() - 1)].strides[a]});
  const int64_t lanes = lanes_of(axis_number, key);
  const int users = static_cast<int>(std::clamp<int64_t>(lanes, 1, threads));
  with_dtype(key.dtype, [&](auto t) {
    using T = decltype(t);
    using E = Entry<T>;
    STOW_CHECK(sizeof(T) == 8 || n <= int64_t{1} << 32, "{}", n);
    const T* data = reinterpret_cast<const T*>(key.data);
    parallel_for(users, lanes, 2048 / n, [&](int64_t begin, int64_t end, int thread) {
      auto* entries = reinterpret_cast<E*>(static_cast<std::byte*>(scratch) + thread * lane_bytes);
      std::vector<Walk<2>> walks;
      for (const Nest<2>& nest : nests) walks.emplace_back(nest, begin);
      for (int64_t lane = begin; lane < end; ++lane) {
        for (int64_t i = 0; i < n; ++i) {
          const auto k = ordered(data[walks[0].offset[1] + i * key.strides[axis]], order);
          if constexpr (sizeof(T) == 8)
            entries[i] = {k, static_cast<uint64_t>(i)};
          else
            entries[i] = uint64_t{k} << 32 | static_cast<uint64_t>(i);
        }
        arrange(entries, n);
        emit(entries, walks);
        for (Walk<2>& walk : walks) walk.next();
      }
    });
  });
}

// Orders n keys digit by digit, the lowest first, in turns between `keys` and as much spare memory.
// Returns which of the two they end up in.
template <int kBits, typename U>
U* sort_by_digits(U* keys, U* spare, int64_t n) {
  constexpr U kMask = (U{1} << kBits) - 1;
  int64_t ends[size_t{1} << kBits];
  for (int shift = 0; shift < static_cast<int>(8 * sizeof(U)); shift += kBits) {
    std::fill(std::begin(ends), std::end(ends), 0);
    for (int64_t i = 0; i < n; ++i) ++ends[keys[i] >> shift & kMask];
    if (ends[keys[0] >> shift & kMask] == n) continue;
    int64_t before = 0;
    for (int64_t& end : ends) before += std::exchange(end, before);
    for (int64_t i = 0; i < n; ++i) spare[ends[keys[i] >> shift & kMask]++] = keys[i];
    std::swap(keys, spare);
  }
  return keys;
}

// The element whose ordered() this is, in an order with signed zeros. Not of NaNs.
template <typename T, typename U>
T from_ordered(U key, bool descending) {
  if (descending) key = static_cast<U>(~key);
  constexpr U kSign = U{1} << (8 * sizeof(U) - 1);
  T x{};
  if constexpr (kIsFloat<T>) {
    const U bits = (key & kSign) != 0 ? static_cast<U>(key & ~kSign) : static_cast<U>(~key);
    store<T>(std::bit_cast<Acc<T>>(bits), x);
  } else {
    x = static_cast<T>(std::is_signed_v<T> ? key ^ kSign : key);
  }
  return x;
}

// Lanes that are sorted by nothing but themselves need no positions: elements with equal keys are
// the same. Floats have two exceptions, NaNs and zeros of both signs, which are written in the
// order that they came in. The scratch of a lane holds two lists of keys instead of one of entries.
template <typename T>
void sort_values(int64_t axis_number, bool descending, const TensorView& x, const TensorView& y,
                 void* scratch, int threads) {
  using U = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
  const auto axis = static_cast<size_t>(axis_number);
  const int64_t n = x.dims[axis], lanes = lanes_of(axis_number, x);
  const int64_t lane_bytes = lane_scratch_bytes(axis_number, x);
  Nest<2> nest;
  for (size_t a = 0; a < x.dims.size(); ++a)
    if (a != axis) add_axis(nest, x.dims[a], {y.strides[a], x.strides[a]});
  const int64_t to_step = y.strides[axis], from_step = x.strides[axis];
  const auto lane = [&](T* to, const T* from, U* keys) {
    const Order order = {descending, true};
    int64_t n_keys = 0, n_zeros[2] = {};
    for (int64_t i = 0; i < n; ++i) {
      const T value = from[i * from_step];
      const U key = ordered(value, order);
      keys[n_keys] = key;
      if constexpr (kIsFloat<T>) {
        const auto wide = load(value);
        if (wide == 0) ++n_zeros[std::signbit(wide) ? 1 : 0];
        n_keys += wide == wide ? 1 : 0;
      } else {
        ++n_keys;
      }
    }
    const int64_t n_nans = n - n_keys, first = descending ? n_nans : 0;
    constexpr int64_t kMany = 1 << 13;  // keys that are worth longer digits
    if (n_keys > 0) {
      const U* const sorted = n_keys < kMany ? sort_by_digits<8>(keys, keys + n, n_keys)
                                             : sort_by_digits<11>(keys, keys + n, n_keys);
      for (int64_t i = 0; i < n_keys; ++i)
        to[(first + i) * to_step] = from_ordered<T>(sorted[i], descending);
    }
    if constexpr (kIsFloat<T>) {
      const auto write_in_order = [&](int64_t at, const auto& is_one) {
        for (int64_t i = 0; i < n; ++i)
          if (is_one(load(from[i * from_step]))) to[at++ * to_step] = from[i * from_step];
      };
      if (n_nans > 0) write_in_order(descending ? 0 : n_keys, [](auto v) { return v != v; });
      if (n_zeros[0] > 0 && n_zeros[1] > 0) {
        int64_t at = first;
        while (load(to[at * to_step]) != 0) ++at;
        write_in_order(at, [](auto v) { return v == 0; });
      }
    }
  };
  const int users = static_cast<int>(std::clamp<int64_t>(lanes, 1, threads));
  parallel_for(users, lanes, 2048 / n, [&](int64_t begin, int64_t end, int thread) {
    auto* keys = reinterpret_cast<U*>(static_cast<std::byte*>(scratch) + thread * lane_bytes);
    Walk<2> walk(nest, begin);
    for (int64_t i = begin; i < end; ++i, walk.next())
      lane(reinterpret_cast<T*>(y.data) + walk.offset[0],
           reinterpret_cast<const T*>(x.data) + walk.offset[1], keys);
  });
}

}  // namespace

int64_t sort_scratch_bytes(int64_t axis, Views in, int threads) {
  const int64_t users = std::clamp<int64_t>(lanes_of(axis, in[0]), 1, threads);
  return in[0].elems() == 0 ? 0 : users * lane_scratch_bytes(axis, in[0]);
}

void sort(const AxisParams& params, Views in, Views out, void* scratch, int threads) {
  const auto axis = static_cast<size_t>(params.axis);
  constexpr int64_t kFew = 128;  // elements, which comparisons order sooner
  const TensorView& key = in[0];
  if (in.size() == 1 && key.dtype != DType::kBool && key.dims[axis] > kFew) {
    if (key.elems() == 0) return;
    return with_dtype(key.dtype, [&](auto t) {
      using T = decltype(t);
      if constexpr (!std::is_same_v<T, Bool>)
        sort_values<T>(params.axis, params.flag, key, out[0], scratch, threads);
    });
  }
  // A result that nobody reads lies where a later one will.
  const auto is_overwritten = [&](size_t k) {
    return std::any_of(out.begin() + static_cast<std::ptrdiff_t>(k) + 1, out.end(),
                       [&](const TensorView& later) { return later.data == out[k].data; });
  };
  for_each_lane(
      params.axis, {params.flag, false}, in, out, scratch, threads,
      [](auto* entries, int64_t n) { std::sort(entries, entries + n); },
      [&](auto* entries, const std::vector<Walk<2>>& walks) {
        for (size_t k = 0; k < in.size(); ++k)
          if (!is_overwritten(k))
            permute(entries, in[0].dims[axis], in[k], walks[k].offset[1], in[k].strides[axis],
                    out[k], walks[k].offset[0], out[k].strides[axis]);
      });
}

void top_k(const TopKParams& params, Views in, Views out, void* scratch, int threads) {
  const auto axis = static_cast<size_t>(params.axis);
  const int64_t k = params.k;
  if (k == 0) return;
  for_each_lane(
      params.axis, {true, true}, in, out, scratch, threads,
      [k](auto* entries, int64_t n) { std::partial_sort(entries, entries + k, entries + n); },
      [&](auto* entries, const std::vector<Walk<2>>& walks) {
        permute(entries, k, in[0], walks[0].offset[1], in[0].strides[axis], out[0],
                walks[0].offset[0], out[0].strides[axis]);
        auto* to = reinterpret_cast<int32_t*>(out[1].data) + walks[1].offset[0];
        for (int64_t i = 0; i < k; ++i)
          to[i * out[1].strides[axis]] = static_cast<int32_t>(position(entries[i]));
      });
}

}  // namespace stow::cpu::kernels
