// C++ types of the dtypes, their accumulators and the arithmetic of the op kernels.
// Not the row programs' vector kernels; these are scalar and left to the compiler.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "stowage/base/error.h"
#include "stowage/core/dtype.h"
#include "stowage/core/half.h"

namespace stow::cpu::kernels {

/// A bool in memory: any byte but 0 is true.
struct Bool {
  uint8_t value;
};

/// Calls f with a value of the C++ type of `dtype`; only its type matters. Returns what f returns.
template <typename F>
auto with_dtype(DType dtype, const F& f) {
  switch (dtype) {
    case DType::kF64:
      return f(double{});
    case DType::kF32:
      return f(float{});
    case DType::kBF16:
      return f(Bf16{});
    case DType::kF16:
      return f(F16{});
    case DType::kI64:
      return f(int64_t{});
    case DType::kI32:
      return f(int32_t{});
    case DType::kI8:
      return f(int8_t{});
    case DType::kU64:
      return f(uint64_t{});
    case DType::kU32:
      return f(uint32_t{});
    case DType::kU8:
      return f(uint8_t{});
    case DType::kBool:
      return f(Bool{});
  }
  STOW_CHECK(false, "dtype {}", static_cast<int>(dtype));
  return f(float{});
}

template <typename T>
inline constexpr bool kIsHalf = std::is_same_v<T, Bf16> || std::is_same_v<T, F16>;
template <typename T>
inline constexpr bool kIsFloat = kIsHalf<T> || std::is_floating_point_v<T>;

/// Type of accumulators of T: float for f16 and bf16, bool for Bool, else T.
template <typename T>
using Acc =
    std::conditional_t<kIsHalf<T>, float, std::conditional_t<std::is_same_v<T, Bool>, bool, T>>;

/// Converts an element to the type of its accumulator.
template <typename T>
Acc<T> load(T x) {
  if constexpr (kIsHalf<T>)
    return widen(x);
  else if constexpr (std::is_same_v<T, Bool>)
    return x.value != 0;
  else
    return x;
}

/// Stores an accumulator as an element, rounded as narrow() does.
template <typename T>
void store(Acc<T> x, T& to) {
  if constexpr (kIsHalf<T>)
    narrow(x, to);
  else if constexpr (std::is_same_v<T, Bool>)
    to.value = x ? 1 : 0;
  else
    to = x;
}

/// Returns a + b. Integers wrap; of bool, "or".
template <typename A>
A add(A a, A b) {
  if constexpr (std::is_same_v<A, bool>)
    return a || b;
  else if constexpr (std::is_integral_v<A>)
    return static_cast<A>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  else
    return a + b;
}

/// Returns a * b. Integers wrap; of bool, "and".
template <typename A>
A mul(A a, A b) {
  if constexpr (std::is_same_v<A, bool>)
    return a && b;
  else if constexpr (std::is_integral_v<A>)
    return static_cast<A>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  else
    return a * b;
}

/// Returns the larger of two numbers; minimum() the smaller. NaN if either is; +0 is above -0.
template <typename A>
A maximum(A a, A b) {
  if constexpr (std::is_floating_point_v<A>)
    if (a == b) return std::signbit(a) ? b : a;
  return a > b || a != a ? a : b;
}
template <typename A>
A minimum(A a, A b) {
  if constexpr (std::is_floating_point_v<A>)
    if (a == b) return std::signbit(a) ? a : b;
  return a < b || a != a ? a : b;
}

/// Calls f with a value of the unsigned type of `width` bytes: 1, 2, 4 or 8.
template <typename F>
void with_width(int64_t width, const F& f) {
  switch (width) {
    case 1:
      return f(uint8_t{});
    case 2:
      return f(uint16_t{});
    case 4:
      return f(uint32_t{});
    case 8:
      return f(uint64_t{});
  }
  STOW_CHECK(false, "width {}", width);
}

/// Calls f with a value of the C++ type of an integer dtype.
template <typename F>
void with_index(DType dtype, const F& f) {
  switch (dtype) {
    case DType::kI64:
      return f(int64_t{});
    case DType::kI32:
      return f(int32_t{});
    case DType::kI8:
      return f(int8_t{});
    case DType::kU64:
      return f(uint64_t{});
    case DType::kU32:
      return f(uint32_t{});
    case DType::kU8:
      return f(uint8_t{});
    case DType::kF64:
    case DType::kF32:
    case DType::kBF16:
    case DType::kF16:
    case DType::kBool:
      break;
  }
  STOW_CHECK(false, "{} is no index type", dtype_name(dtype));
}

/// Returns an index as int64. A u64 beyond its range gives the largest int64.
template <typename I>
int64_t as_start(I index) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  if constexpr (std::is_same_v<I, uint64_t>)
    return index > uint64_t{kMost} ? kMost : static_cast<int64_t>(index);
  else
    return index;
}

/// Returns element `offset` of an array of integers at p as int64. A u64 beyond its range gives the
/// largest int64.
inline int64_t load_index(const std::byte* p, DType dtype, int64_t offset) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  switch (dtype) {
    case DType::kI64:
      return reinterpret_cast<const int64_t*>(p)[offset];
    case DType::kI32:
      return reinterpret_cast<const int32_t*>(p)[offset];
    case DType::kI8:
      return reinterpret_cast<const int8_t*>(p)[offset];
    case DType::kU64: {
      const uint64_t value = reinterpret_cast<const uint64_t*>(p)[offset];
      return value > uint64_t{kMost} ? kMost : static_cast<int64_t>(value);
    }
    case DType::kU32:
      return reinterpret_cast<const uint32_t*>(p)[offset];
    case DType::kU8:
      return reinterpret_cast<const uint8_t*>(p)[offset];
    case DType::kF64:
    case DType::kF32:
    case DType::kBF16:
    case DType::kF16:
    case DType::kBool:
      break;
  }
  STOW_CHECK(false, "{} is no index type", dtype_name(dtype));
  return 0;
}

}  // namespace stow::cpu::kernels
