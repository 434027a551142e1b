#include "stowage/core/scalar.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "stowage/base/error.h"

namespace stow {
namespace {

template <typename T>
std::vector<std::byte> bytes_of(T value) {
  std::vector<std::byte> bytes(sizeof(T));
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

template <typename T>
T value_of(std::span<const std::byte> bytes) {
  STOW_CHECK(bytes.size() >= sizeof(T), "an element takes {} bytes, got {}", sizeof(T),
             bytes.size());
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

uint16_t bf16_bits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

uint16_t f16_bits(float value) {
  const unsigned sign = std::signbit(value) ? 0x8000u : 0u;
  const double a = std::fabs(static_cast<double>(value));
  if (std::isnan(a)) return static_cast<uint16_t>(sign | 0x7e00u);
  if (a >= 65520.0) return static_cast<uint16_t>(sign | 0x7c00u);
  if (a == 0) return static_cast<uint16_t>(sign);
  const int exponent = std::max(std::ilogb(a), -14);
  // In units of the last place, 1024 standing for the hidden bit; a carry runs into the exponent.
  const auto units = static_cast<unsigned>(std::nearbyint(std::ldexp(a, 10 - exponent)));
  return static_cast<uint16_t>(sign | ((static_cast<unsigned>(exponent + 14) << 10) + units));
}

double f16_value(uint16_t bits) {
  const int exponent = (bits >> 10) & 0x1f, mantissa = bits & 0x3ff;
  double a = 0;
  if (exponent == 0x1f)
    a = mantissa ? std::numeric_limits<double>::quiet_NaN()
                 : std::numeric_limits<double>::infinity();
  else
    a = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return bits & 0x8000u ? -a : a;
}

}  // namespace

int64_t max_int_value(DType dtype) {
  const int bits = static_cast<int>(dtype_bytes(dtype)) * 8;
  if (bits == 64) return std::numeric_limits<int64_t>::max();
  return (int64_t{1} << (is_signed_int(dtype) ? bits - 1 : bits)) - 1;
}

int64_t min_int_value(DType dtype) {
  if (!is_signed_int(dtype)) return 0;
  return dtype_bytes(dtype) == 8 ? std::numeric_limits<int64_t>::min() : -max_int_value(dtype) - 1;
}

std::optional<std::vector<std::byte>> encode_scalar_int(DType dtype, int64_t value) {
  if (is_float(dtype)) return encode_scalar(dtype, static_cast<double>(value));
  if (dtype == DType::kBool) return bytes_of<uint8_t>(value != 0);
  if (dtype == DType::kU64) return bytes_of(value);
  if (value < min_int_value(dtype) || value > max_int_value(dtype)) return std::nullopt;
  switch (dtype_bytes(dtype)) {
    case 1: return bytes_of(static_cast<int8_t>(value));
    case 4: return bytes_of(static_cast<int32_t>(value));
    default: return bytes_of(value);
  }
}

std::optional<std::vector<std::byte>> encode_scalar(DType dtype, double value) {
  switch (dtype) {
    case DType::kF64: return bytes_of(value);
    case DType::kF32: return bytes_of(static_cast<float>(value));
    case DType::kBF16: return bytes_of(bf16_bits(static_cast<float>(value)));
    case DType::kF16: return bytes_of(f16_bits(static_cast<float>(value)));
    case DType::kBool: return bytes_of<uint8_t>(value != 0);
    case DType::kU64:
      if (!(value > -1.0 && value < 18446744073709551616.0)) return std::nullopt;
      return bytes_of(static_cast<uint64_t>(value));
    case DType::kI64:
    case DType::kI32:
    case DType::kI8:
    case DType::kU32:
    case DType::kU8:
      if (!(value >= -9223372036854775808.0 && value < 9223372036854775808.0)) return std::nullopt;
      return encode_scalar_int(dtype, static_cast<int64_t>(value));
  }
  return std::nullopt;
}

double decode_scalar(DType dtype, std::span<const std::byte> bytes) {
  switch (dtype) {
    case DType::kF64: return value_of<double>(bytes);
    case DType::kF32: return static_cast<double>(value_of<float>(bytes));
    case DType::kBF16:
      return static_cast<double>(std::bit_cast<float>(uint32_t{value_of<uint16_t>(bytes)} << 16));
    case DType::kF16: return f16_value(value_of<uint16_t>(bytes));
    case DType::kI64: return static_cast<double>(value_of<int64_t>(bytes));
    case DType::kI32: return value_of<int32_t>(bytes);
    case DType::kI8: return value_of<int8_t>(bytes);
    case DType::kU64: return static_cast<double>(value_of<uint64_t>(bytes));
    case DType::kU32: return value_of<uint32_t>(bytes);
    case DType::kU8:
    case DType::kBool: return value_of<uint8_t>(bytes);
  }
  return 0;
}

}  // namespace stow
