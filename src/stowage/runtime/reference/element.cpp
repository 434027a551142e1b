#include "stowage/runtime/reference/element.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "stowage/base/error.h"

namespace stow::ref {
namespace {

constexpr int kBF16Mantissa = 7, kF16Mantissa = 10;

template <typename T>
T read(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

template <typename T>
void write(std::byte* p, T value) {
  std::memcpy(p, &value, sizeof value);
}

}  // namespace

std::byte* at(const TensorView& view, const Dims& index) {
  int64_t offset = 0;
  for (size_t i = 0; i < index.size(); ++i) offset += index[i] * view.strides[i];
  return view.data + offset * dtype_bytes(view.dtype);
}

double load_float(const TensorView& view, const Dims& index) {
  const std::byte* p = at(view, index);
  switch (view.dtype) {
    case DType::kF64:
      return read<double>(p);
    case DType::kF32:
      return static_cast<double>(read<float>(p));
    case DType::kBF16:
      return decode16(read<uint16_t>(p), kBF16Mantissa);
    case DType::kF16:
      return decode16(read<uint16_t>(p), kF16Mantissa);
    case DType::kU64:
      return static_cast<double>(read<uint64_t>(p));
    case DType::kI64:
    case DType::kI32:
    case DType::kI8:
    case DType::kU32:
    case DType::kU8:
    case DType::kBool:
      return static_cast<double>(load_int(view, index));
  }
  return 0;
}

int64_t load_int(const TensorView& view, const Dims& index) {
  const std::byte* p = at(view, index);
  switch (view.dtype) {
    case DType::kI64:
      return read<int64_t>(p);
    case DType::kI32:
      return read<int32_t>(p);
    case DType::kI8:
      return read<int8_t>(p);
    case DType::kU64:
      return static_cast<int64_t>(read<uint64_t>(p));
    case DType::kU32:
      return read<uint32_t>(p);
    case DType::kU8:
      return read<uint8_t>(p);
    case DType::kBool:
      return read<uint8_t>(p) != 0;
    case DType::kF64:
    case DType::kF32:
    case DType::kBF16:
    case DType::kF16:
      break;
  }
  STOW_CHECK(false, "{} is no integer type", dtype_name(view.dtype));
  return 0;
}

int64_t load_index(const TensorView& view, const Dims& index) {
  const int64_t value = load_int(view, index);
  return view.dtype == DType::kU64 && value < 0 ? std::numeric_limits<int64_t>::max() : value;
}

void store_float(const TensorView& view, const Dims& index, long double value) {
  std::byte* p = at(view, index);
  switch (view.dtype) {
    case DType::kF64:
      return write(p, static_cast<double>(value));
    case DType::kF32:
      return write(p, static_cast<float>(value));
    case DType::kBF16:
      return write(p, encode16(value, kBF16Mantissa));
    case DType::kF16:
      return write(p, encode16(value, kF16Mantissa));
    case DType::kI64:
    case DType::kI32:
    case DType::kI8:
    case DType::kU64:
    case DType::kU32:
    case DType::kU8:
    case DType::kBool:
      break;
  }
  STOW_CHECK(false, "{} is no float type", dtype_name(view.dtype));
}

void store_int(const TensorView& view, const Dims& index, int64_t value) {
  std::byte* p = at(view, index);
  switch (view.dtype) {
    case DType::kI64:
    case DType::kU64:
      return write(p, value);
    case DType::kI32:
    case DType::kU32:
      return write(p, static_cast<uint32_t>(value));
    case DType::kI8:
    case DType::kU8:
      return write(p, static_cast<uint8_t>(value));
    case DType::kBool:
      return write(p, static_cast<uint8_t>(value != 0));
    case DType::kF64:
    case DType::kF32:
    case DType::kBF16:
    case DType::kF16:
      break;
  }
  STOW_CHECK(false, "{} is no integer type", dtype_name(view.dtype));
}

void copy_element(const TensorView& from, const Dims& from_index, const TensorView& to,
                  const Dims& to_index) {
  std::memcpy(at(to, to_index), at(from, from_index), static_cast<size_t>(dtype_bytes(to.dtype)));
}

uint16_t encode16(long double value, int mantissa_bits) {
  const int exponent_bits = 15 - mantissa_bits, bias = (1 << (exponent_bits - 1)) - 1;
  const int64_t sign = std::signbit(value) ? 0x8000 : 0;
  const int64_t inf = ((int64_t{1} << exponent_bits) - 1) << mantissa_bits;
  const long double magnitude = std::fabs(value);
  if (std::isnan(value)) return static_cast<uint16_t>(sign | inf | 1 << (mantissa_bits - 1));
  if (std::isinf(value)) return static_cast<uint16_t>(sign | inf);
  if (magnitude == 0) return static_cast<uint16_t>(sign);
  int exponent;
  std::frexp(magnitude, &exponent);  // magnitude = m * 2^exponent, 0.5 <= m < 1
  exponent = std::max(exponent - 1, 1 - bias);
  if (exponent > bias) return static_cast<uint16_t>(sign | inf);
  const auto quotient =
      static_cast<int64_t>(std::nearbyint(std::ldexp(magnitude, mantissa_bits - exponent)));
  // The leading bit of a normal quotient adds 1 to the exponent field, as does a carry.
  const int64_t bits = (static_cast<int64_t>(exponent + bias - 1) << mantissa_bits) + quotient;
  return static_cast<uint16_t>(sign | std::min(bits, inf));
}

double decode16(uint16_t bits, int mantissa_bits) {
  const int exponent_bits = 15 - mantissa_bits, bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits & 0x7fff) >> mantissa_bits;
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  double magnitude;
  if (exponent == (1 << exponent_bits) - 1)
    magnitude = mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                              : std::numeric_limits<double>::infinity();
  else if (exponent == 0)
    magnitude = std::ldexp(mantissa, 1 - bias - mantissa_bits);
  else
    magnitude = std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

}  // namespace stow::ref
