// Loads, stores and iotas of a row program: between any strides and dense registers.
#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "stowage/runtime/cpu/kernels/reverse_row.h"
#include "stowage/runtime/cpu/kernels/row_kernels.h"
#include "stowage/runtime/cpu/kernels/row_scalar.h"
#include "stowage/runtime/cpu/kernels/transpose_block.h"

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
  if (c.rows == 1 && c.cols == 1) return write<To>(c.to, F(read<From>(c.from)));
  if (c.from_col_step == int64_t{sizeof(From)} && c.to_col_step == int64_t{sizeof(To)}) {
    for (int64_t r = 0; r < c.rows; ++r) {
      const auto* from = reinterpret_cast<const From*>(c.from + r * c.from_row_step);
      auto* to = reinterpret_cast<To*>(c.to + r * c.to_row_step);
      if constexpr (std::is_same_v<To, From>)
        std::memmove(to, from, static_cast<size_t>(c.cols) * sizeof(To));
      else
        for (int64_t i = 0; i < c.cols; ++i) to[i] = F(from[i]);
    }
    return;
  }
  if constexpr (std::is_same_v<To, From>)
    if (c.from_col_step == -int64_t{sizeof(From)} && c.to_col_step == int64_t{sizeof(To)}) {
      for (int64_t r = 0; r < c.rows; ++r)
        reverse_row(reinterpret_cast<To*>(c.to + r * c.to_row_step),
                    reinterpret_cast<const From*>(c.from + r * c.from_row_step), c.cols);
      return;
    }
  if (c.from_col_step == 0 && c.to_col_step == int64_t{sizeof(To)}) {
    for (int64_t r = 0; r < c.rows; ++r)
      std::fill_n(reinterpret_cast<To*>(c.to + r * c.to_row_step), c.cols,
                  F(read<From>(c.from + r * c.from_row_step)));
    return;
  }
  if constexpr (std::is_same_v<To, From>) {
    constexpr int64_t kSize = sizeof(To);
    const bool loads = c.to_col_step == kSize && c.from_row_step == kSize;
    const bool stores = c.from_col_step == kSize && c.to_row_step == kSize;
    const int64_t to_step = loads ? c.to_row_step : c.to_col_step;
    const int64_t from_step = loads ? c.from_col_step : c.from_row_step;
    if ((loads || stores) && to_step % kSize == 0 && from_step % kSize == 0)
      return transpose_rows(reinterpret_cast<To*>(c.to), to_step / kSize,
                            reinterpret_cast<const From*>(c.from), from_step / kSize,
                            loads ? c.cols : c.rows, loads ? c.rows : c.cols);
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

// A register's floats from those of a half type and back: dense ones by the kernel that copies.
template <typename To, typename From, To (*F)(From)>
void move_half(const MoveCall& c, Form from_form, Form to_form) {
  if (c.from_col_step != int64_t{sizeof(From)} || c.to_col_step != int64_t{sizeof(To)})
    return move<To, From, F>(c);
  KernelCall call;
  call.rows = c.rows;
  call.cols = c.cols;
  call.args[0].data = c.from;
  call.args[0].row_step = c.from_row_step;
  call.args[0].form = from_form;
  call.out = c.to;
  call.out_row_step = c.to_row_step;
  call.out_form = call.round = to_form;
  f32_map_kernel(OpKind::kReshape)(call);
}
void load_bf16(const MoveCall& c) {
  move_half<float, uint16_t, bf16_to_f32>(c, Form::kBF16, Form::kNative);
}
void load_f16(const MoveCall& c) {
  move_half<float, uint16_t, f16_to_f32>(c, Form::kF16, Form::kNative);
}
void store_bf16(const MoveCall& c) {
  move_half<uint16_t, float, f32_to_bf16>(c, Form::kNative, Form::kBF16);
}
void store_f16(const MoveCall& c) {
  move_half<uint16_t, float, f32_to_f16>(c, Form::kNative, Form::kF16);
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
    if constexpr (std::is_same_v<T, int32_t>) {
      // Both ends fit, so what lies between does, and 32 bits hold it: a loop of vectors.
      const int64_t last = start + (c.cols - 1) * c.col_step;
      if (c.cols > 0 && std::in_range<T>(start) && std::in_range<T>(last)) {
        auto value = static_cast<uint32_t>(start);
        const auto step = static_cast<uint32_t>(c.col_step);
        for (int64_t i = 0; i < c.cols; ++i, value += step) out[i] = static_cast<T>(value);
        continue;
      }
    }
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
      return load_bf16;
    case DType::kF16:
      return load_f16;
    case DType::kI8:
    case DType::kU8:
    case DType::kBool:
      return move<uint8_t, uint8_t, same<uint8_t>>;
  }
  return nullptr;
}

MoveKernel store_kernel(DType dtype) {
  if (dtype == DType::kBF16) return store_bf16;
  if (dtype == DType::kF16) return store_f16;
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
