// bf16 and f16 as storage: 16-bit patterns and their scalar conversions to and from f32.
// Not arithmetic types, whose sums and products are f32, and not loops over arrays.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

namespace stow {

/// The bits of a bf16.
struct Bf16 {
  uint16_t bits;
};
/// The bits of an f16.
struct F16 {
  uint16_t bits;
};

/// Converts a scalar to the type of its accumulator: bf16 and f16 to f32, exactly. f32, f64 and
/// integers stay as they are.
template <typename T>
  requires std::is_arithmetic_v<T>
T widen(T x) {
  return x;
}
inline float widen(Bf16 x) { return std::bit_cast<float>(uint32_t{x.bits} << 16); }
inline float widen(F16 x) {
  const uint32_t sign = uint32_t{x.bits & 0x8000u} << 16, magnitude = x.bits & 0x7fffu;
  if (magnitude < 0x400)  // zero and subnormal: exact in f32
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(float(magnitude) * 0x1p-24f));
  if (magnitude < 0x7c00) return std::bit_cast<float>(sign | ((magnitude << 13) + (112u << 23)));
  return std::bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13 |
                              (magnitude > 0x7c00 ? 0x400000u : 0u));
}

/// Stores x in the type of `to`, rounded to nearest, ties to even. A NaN becomes a quiet NaN.
inline void narrow(float x, float& to) { to = x; }
inline void narrow(double x, double& to) { to = x; }
inline void narrow(float x, Bf16& to) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const bool nan = (u & 0x7fffffffu) > 0x7f800000u;
  to.bits = static_cast<uint16_t>(nan ? (u >> 16) | 0x40u : (u + 0x7fffu + ((u >> 16) & 1)) >> 16);
}
inline void narrow(float x, F16& to) {
  const uint32_t u = std::bit_cast<uint32_t>(x), sign = (u >> 16) & 0x8000u;
  uint32_t m = u & 0x7fffffffu;
  if (m > 0x7f800000u) {
    m = 0x7e00u | ((m >> 13) & 0x3ffu);
  } else if (m >= 0x477ff000u) {  // 65520 and above round to infinity
    m = 0x7c00u;
  } else if (m < 0x38800000u) {  // below 2^-14: adding 0.5 rounds at 2^-24, f16's last bit there
    m = std::bit_cast<uint32_t>(std::bit_cast<float>(m) + 0.5f) - 0x3f000000u;
  } else {
    m = (m - (112u << 23) + 0xfffu + ((m >> 13) & 1)) >> 13;
  }
  to.bits = static_cast<uint16_t>(sign | m);
}

}  // namespace stow
