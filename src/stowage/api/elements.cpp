#include "stowage/api/elements.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace stow {
namespace {

float from_f16(uint16_t h) {
  const float sign = h & 0x8000 ? -1.0f : 1.0f;
  const int exponent = (h >> 10) & 31, mantissa = h & 1023;
  if (exponent == 31) return mantissa ? std::numeric_limits<float>::quiet_NaN() : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -24);
  return sign * std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
}

// Rounds at f16's precision with the spacing of the value's own binade, so one rounding only.
uint16_t to_f16(double x) {
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  if (std::isnan(x)) return sign | 0x7e00;
  x = std::fabs(x);
  if (x >= 65520.0) return sign | 0x7c00;
  const int exponent = x < 0x1p-14 ? -14 : std::ilogb(x);
  const int units = static_cast<int>(std::nearbyint(std::ldexp(x, 10 - exponent)));
  return static_cast<uint16_t>(sign | (((exponent + 14) << 10) + units));
}

uint16_t to_bf16(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if (std::isnan(x)) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

template <typename T>
T load(const void* p, int64_t i) {
  T value;
  std::memcpy(&value, static_cast<const char*>(p) + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}
template <typename T>
void store(void* p, int64_t i, T value) {
  std::memcpy(static_cast<char*>(p) + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

double load_float(const void* p, DType t, int64_t i) {
  switch (t) {
    case DType::kF64:
      return load<double>(p, i);
    case DType::kF32:
      return load<float>(p, i);
    case DType::kBF16:
      return std::bit_cast<float>(uint32_t{load<uint16_t>(p, i)} << 16);
    default:
      return from_f16(load<uint16_t>(p, i));
  }
}

// Sign-extended; u64 as its bits.
int64_t load_int(const void* p, DType t, int64_t i) {
  switch (t) {
    case DType::kI64:
    case DType::kU64:
      return load<int64_t>(p, i);
    case DType::kI32:
      return load<int32_t>(p, i);
    case DType::kU32:
      return load<uint32_t>(p, i);
    case DType::kI8:
      return load<int8_t>(p, i);
    case DType::kU8:
      return load<uint8_t>(p, i);
    default:
      return load<uint8_t>(p, i) != 0;
  }
}

template <typename T>
T saturate(double x) {
  if (std::isnan(x)) return 0;
  if (x <= static_cast<double>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
  if (x >= static_cast<double>(std::numeric_limits<T>::max())) return std::numeric_limits<T>::max();
  return static_cast<T>(x);
}

void store_float(void* p, DType t, int64_t i, double x) {
  switch (t) {
    case DType::kF64:
      return store(p, i, x);
    case DType::kF32:
      return store(p, i, static_cast<float>(x));
    case DType::kBF16:
      return store(p, i, to_bf16(static_cast<float>(x)));
    case DType::kF16:
      return store(p, i, to_f16(x));
    case DType::kI64:
      return store(p, i, saturate<int64_t>(x));
    case DType::kI32:
      return store(p, i, saturate<int32_t>(x));
    case DType::kI8:
      return store(p, i, saturate<int8_t>(x));
    case DType::kU64:
      return store(p, i, saturate<uint64_t>(x));
    case DType::kU32:
      return store(p, i, saturate<uint32_t>(x));
    case DType::kU8:
      return store(p, i, saturate<uint8_t>(x));
    case DType::kBool:
      return store(p, i, static_cast<uint8_t>(x != 0));
  }
}

void store_int(void* p, DType t, int64_t i, int64_t x) {
  switch (dtype_bytes(t)) {
    case 8:
      return store(p, i, x);
    case 4:
      return store(p, i, static_cast<uint32_t>(x));
    default:
      return store(p, i, static_cast<uint8_t>(t == DType::kBool ? x != 0 : x));
  }
}

}  // namespace

void convert_elements(const void* from, DType from_dtype, void* to, DType to_dtype, int64_t n) {
  if (n == 0) return;
  if (from_dtype == to_dtype) {
    std::memcpy(to, from, static_cast<size_t>(n * dtype_bytes(to_dtype)));
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    if (is_float(from_dtype)) {
      store_float(to, to_dtype, i, load_float(from, from_dtype, i));
      continue;
    }
    const int64_t x = load_int(from, from_dtype, i);
    if (!is_float(to_dtype)) {
      store_int(to, to_dtype, i, x);
    } else if (to_dtype == DType::kF32) {  // rounded once, not by way of double
      store(to, i,
            from_dtype == DType::kU64 ? static_cast<float>(static_cast<uint64_t>(x))
                                      : static_cast<float>(x));
    } else {
      store_float(to, to_dtype, i,
                  from_dtype == DType::kU64 ? static_cast<double>(static_cast<uint64_t>(x))
                                            : static_cast<double>(x));
    }
  }
}

}  // namespace stow
