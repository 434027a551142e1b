#include "stowage/runtime/comm/tree_reduce.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "stowage/base/error.h"
#include "stowage/core/half.h"

namespace stow::comm {
namespace {

// Elements that go through the tree at a time: the nodes on a path to a leaf fit the first cache.
constexpr int64_t kBlockElems = 512;
constexpr int kMaxDepth = 32;

template <typename T>
struct Sum {
  static T apply(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
    } else if constexpr (std::is_floating_point_v<T>) {
      return a + b;
    } else {
      T sum;
      narrow(widen(a) + widen(b), sum);
      return sum;
    }
  }
};

template <typename T>
struct Max {
  static T apply(T x, T y) {
    if constexpr (std::is_integral_v<T>) return x > y ? x : y;
    const auto a = widen(x), b = widen(y);
    const bool first = a != a || (a == b ? !std::signbit(a) : a > b);
    return first ? x : y;
  }
};

template <typename T>
struct Min {
  static T apply(T x, T y) {
    if constexpr (std::is_integral_v<T>) return x < y ? x : y;
    const auto a = widen(x), b = widen(y);
    const bool first = a != a || (a == b ? std::signbit(a) : a < b);
    return first ? x : y;
  }
};

template <typename T>
struct And {
  static T apply(T a, T b) { return static_cast<T>(a & b); }
};
template <typename T>
struct Or {
  static T apply(T a, T b) { return static_cast<T>(a | b); }
};

template <template <typename> class Op, typename T>
void combine(const T* a, const T* b, T* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = Op<T>::apply(a[i], b[i]);
}

// Writes the tree over `parts` to `out`, which is none of them.
template <template <typename> class Op, typename T>
void tree(std::span<const std::byte* const> parts, int64_t at, int64_t n, T* out,
          T (*scratch)[kBlockElems]) {
  const auto elems = [&](size_t part) { return reinterpret_cast<const T*>(parts[part]) + at; };
  if (parts.size() == 1) {
    std::memcpy(out, elems(0), static_cast<size_t>(n) * sizeof(T));
    return;
  }
  if (parts.size() == 2) return combine<Op, T>(elems(0), elems(1), out, n);
  const size_t first = std::bit_floor(parts.size() - 1);
  tree<Op, T>(parts.first(first), at, n, out, scratch);
  const std::span<const std::byte* const> rest = parts.subspan(first);
  if (rest.size() == 1) return combine<Op, T>(out, elems(first), out, n);
  tree<Op, T>(rest, at, n, scratch[0], scratch + 1);
  combine<Op, T>(out, scratch[0], out, n);
}

template <template <typename> class Op, typename T>
void run(std::span<const std::byte* const> parts, int64_t n_elems, std::byte* out) {
  T block[kBlockElems], scratch[kMaxDepth][kBlockElems];
  for (int64_t at = 0; at < n_elems; at += kBlockElems) {
    const int64_t n = std::min(kBlockElems, n_elems - at);
    tree<Op, T>(parts, at, n, block, scratch);
    std::memcpy(out + at * static_cast<int64_t>(sizeof(T)), block,
                static_cast<size_t>(n) * sizeof(T));
  }
}

template <typename T>
void run_numbers(ReduceKind kind, std::span<const std::byte* const> parts, int64_t n_elems,
                 std::byte* out) {
  switch (kind) {
    case ReduceKind::kSum: return run<Sum, T>(parts, n_elems, out);
    case ReduceKind::kMax: return run<Max, T>(parts, n_elems, out);
    case ReduceKind::kMin: return run<Min, T>(parts, n_elems, out);
    case ReduceKind::kAnd:
      if constexpr (std::is_integral_v<T>) return run<And, T>(parts, n_elems, out);
      break;
    case ReduceKind::kOr:
      if constexpr (std::is_integral_v<T>) return run<Or, T>(parts, n_elems, out);
      break;
  }
}

}  // namespace

bool can_reduce(ReduceKind kind, DType dtype) {
  if (kind == ReduceKind::kSum) return dtype != DType::kBool;
  if (kind == ReduceKind::kAnd || kind == ReduceKind::kOr) return !is_float(dtype);
  return true;
}

void tree_reduce(ReduceKind kind, DType dtype, std::span<const std::byte* const> parts,
                 int64_t n_elems, std::byte* out) {
  STOW_CHECK(can_reduce(kind, dtype), "no {} of {}", reduce_kind_name(kind), dtype_name(dtype));
  switch (dtype) {
    case DType::kF64: return run_numbers<double>(kind, parts, n_elems, out);
    case DType::kF32: return run_numbers<float>(kind, parts, n_elems, out);
    case DType::kBF16: return run_numbers<Bf16>(kind, parts, n_elems, out);
    case DType::kF16: return run_numbers<F16>(kind, parts, n_elems, out);
    case DType::kI64: return run_numbers<int64_t>(kind, parts, n_elems, out);
    case DType::kI32: return run_numbers<int32_t>(kind, parts, n_elems, out);
    case DType::kI8: return run_numbers<int8_t>(kind, parts, n_elems, out);
    case DType::kU64: return run_numbers<uint64_t>(kind, parts, n_elems, out);
    case DType::kU32: return run_numbers<uint32_t>(kind, parts, n_elems, out);
    case DType::kU8:
    case DType::kBool: return run_numbers<uint8_t>(kind, parts, n_elems, out);
  }
}

}  // namespace stow::comm
