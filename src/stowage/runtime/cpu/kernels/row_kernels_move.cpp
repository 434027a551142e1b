// Loads, stores and iotas of a row program: between any strides and dense registers.
#include <algorithm>
#include <cstring>

#include "stowage/runtime/cpu/kernels/row_kernels.h"
#include "stowage/runtime/cpu/kernels/row_scalar.h"

namespace stow::cpu {
namespace {

template <typename T>
T read(const std::byte* p) {
  T x;
  std::memcpy(&x, p, sizeof(x));
  return x;
}
template <typename T>
void write(std::byte* p, T x) {
  std::memcpy(p, &x, sizeof(x));
}

template <typename T>
T same(T x) {
  return x;
}

template <typename To, typename From, To (*F)(From)>
void move(const MoveCall& c) {
  if (c.from_col_step == int64_t{sizeof(From)} && c.to_col_step == int64_t{sizeof(To)}) {
    for (int64_t r = 0; r < c.rows; ++r) {
      const auto* from = reinterpret_cast<const From*>(c.from + r * c.from_row_step);
      auto* to = reinterpret_cast<To*>(c.to + r * c.to_row_step);
      for (int64_t i = 0; i < c.cols; ++i) to[i] = F(from[i]);
    }
    return;
  }
  // Blocks, so that of a transposed operand every cache line is used whole while it is near.
  constexpr int64_t kBlock = 16;
  const bool by_rows = std::abs(c.from_row_step) + std::abs(c.to_row_step) >
                       std::abs(c.from_col_step) + std::abs(c.to_col_step);
  const int64_t row_block = by_rows ? 1 : kBlock, col_block = by_rows ? c.cols : kBlock;
  for (int64_t r0 = 0; r0 < c.rows; r0 += row_block) {
    const int64_t r1 = std::min(c.rows, r0 + row_block);
    for (int64_t i0 = 0; i0 < c.cols; i0 += col_block) {
      const int64_t i1 = std::min(c.cols, i0 + col_block);
      for (int64_t r = r0; r < r1; ++r) {
        const std::byte* from = c.from + r * c.from_row_step;
        std::byte* to = c.to + r * c.to_row_step;
        for (int64_t i = i0; i < i1; ++i)
          write<To>(to + i * c.to_col_step, F(read<From>(from + i * c.from_col_step)));
      }
    }
  }
}

// From a 64-bit coordinate, rounded once.
template <typename T>
T from_coordinate(int64_t x) {
  return scalar::convert<T>(x);
}
float bf16_from_coordinate(int64_t x) {
  return bf16_to_f32(f32_to_bf16(scalar::round_to_odd(x)));
}
float f16_from_coordinate(int64_t x) {
  return f16_to_f32(f32_to_f16(scalar::round_to_odd(x)));
}

template <typename T, T (*F)(int64_t)>
void iota(const IotaCall& c) {
  for (int64_t r = 0; r < c.rows; ++r) {
    auto* out = reinterpret_cast<T*>(c.out + r * c.out_row_step);
    const int64_t start = c.start + r * c.row_step;
    for (int64_t i = 0; i < c.cols; ++i) out[i] = F(start + i * c.col_step);
  }
}

}  // namespace

MoveKernel load_kernel(DType dtype) {
  switch (dtype) {
    case DType::kF64:
    case DType::kI64:
    case DType::kU64:
      return move<uint64_t, uint64_t, same<uint64_t>>;
    case DType::kF32:
    case DType::kI32:
    case DType::kU32:
      return move<uint32_t, uint32_t, same<uint32_t>>;
    case DType::kBF16:
      return move<float, uint16_t, bf16_to_f32>;
    case DType::kF16:
      return move<float, uint16_t, f16_to_f32>;
    case DType::kI8:
    case DType::kU8:
    case DType::kBool:
      return move<uint8_t, uint8_t, same<uint8_t>>;
  }
  return nullptr;
}

MoveKernel store_kernel(DType dtype) {
  if (dtype == DType::kBF16) return move<uint16_t, float, f32_to_bf16>;
  if (dtype == DType::kF16) return move<uint16_t, float, f32_to_f16>;
  return load_kernel(dtype);
}

IotaKernel iota_kernel(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return iota<double, from_coordinate<double>>;
    case DType::kF32:
      return iota<float, from_coordinate<float>>;
    case DType::kBF16:
      return iota<float, bf16_from_coordinate>;
    case DType::kF16:
      return iota<float, f16_from_coordinate>;
    case DType::kI64:
    case DType::kU64:
      return iota<int64_t, from_coordinate<int64_t>>;
    case DType::kI32:
    case DType::kU32:
      return iota<int32_t, from_coordinate<int32_t>>;
    case DType::kI8:
    case DType::kU8:
      return iota<int8_t, from_coordinate<int8_t>>;
    case DType::kBool:
      return iota<scalar::Bool, from_coordinate<scalar::Bool>>;
  }
  return nullptr;
}

}  // namespace stow::cpu
