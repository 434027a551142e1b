// Conversions between f32, bf16 and f16.
// Not of f64, and not the kernels of programs.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "stowage/core/dtype.h"

namespace stow {

/// Converts the elements of `in`, of dtype `from`, to dtype `to`. Rounds to nearest even; NaN stays
/// NaN, and values that are too large become infinite. `out` has as many elements as `in`.
void convert_floats(DType from, std::span<const std::byte> in, DType to, std::span<std::byte> out);
/// convert_floats from f32 values.
void convert_from_f32(std::span<const float> in, DType to, std::byte* out);

/// Returns the value of an f16, exactly.
inline float f16_to_f32(uint16_t half) {
  const uint32_t word = uint32_t{half} << 16;
  const uint32_t twice = word + word;  // without the sign
  const float normal = std::bit_cast<float>((twice >> 4) + (uint32_t{0xe0} << 23)) * 0x1p-112f;
  const float subnormal = std::bit_cast<float>((twice >> 17) | (uint32_t{126} << 23)) - 0.5f;
  // Masks instead of a selection, because compilers turn a selection into a branch and then do not
  // vectorize.
  const uint32_t small = 0u - static_cast<uint32_t>(twice < (uint32_t{1} << 27));
  const uint32_t magnitude =
      (std::bit_cast<uint32_t>(subnormal) & small) | (std::bit_cast<uint32_t>(normal) & ~small);
  return std::bit_cast<float>((word & 0x80000000u) | magnitude);
}

/// The f16 nearest to a value, ties to even.
inline uint16_t f32_to_f16(float value) {
  const uint32_t word = std::bit_cast<uint32_t>(value), twice = word + word;
  // The factors make values that overflow f16 infinite.
  const float base = std::bit_cast<float>(word & 0x7fffffffu) * 0x1p+112f * 0x1p-110f;
  uint32_t bias = twice & 0xff000000u;
  bias = bias < 0x71000000u ? 0x71000000u : bias;
  // The sum rounds the mantissa to the bits that an f16 has.
  const uint32_t bits =
      std::bit_cast<uint32_t>(std::bit_cast<float>((bias >> 1) + 0x07800000u) + base);
  const uint32_t magnitude = ((bits >> 13) & 0x7c00u) + (bits & 0x0fffu);
  const uint32_t nan = 0u - static_cast<uint32_t>(twice > 0xff000000u);
  return static_cast<uint16_t>(((word >> 16) & 0x8000u) | (0x7e00u & nan) | (magnitude & ~nan));
}

inline float bf16_to_f32(uint16_t half) {
  return std::bit_cast<float>(uint32_t{half} << 16);
}

/// The bf16 nearest to a value, ties to even.
inline uint16_t f32_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t nan = (bits >> 16) | 0x40u;
  return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

}  // namespace stow
