#include "stowage/io/float_convert.h"

#include <algorithm>
#include <cstring>

#include "stowage/base/error.h"

namespace stow {
namespace {

// So many elements go through f32 at a time: they stay in the first cache, and loops of a known
// length become vectors.
constexpr size_t kBlock = 256;

// The loops below are compiled twice: registers of the oldest machines hold few elements, and
// cannot pack 32 bits to 16.
#if defined(__x86_64__)
#define STOW_WIDE_LOOP __attribute__((target("avx2")))
bool has_wide_loops() {
  return __builtin_cpu_supports("avx2");
}
#else
#define STOW_WIDE_LOOP
bool has_wide_loops() {
  return false;
}
#endif

using Widen = float (*)(uint16_t);
using Narrow = uint16_t (*)(float);

template <Widen convert>
void widen_block(const uint16_t* __restrict in, float* __restrict out) {
  for (size_t i = 0; i < kBlock; ++i) out[i] = convert(in[i]);
}
template <Widen convert>
STOW_WIDE_LOOP void widen_block_wide(const uint16_t* __restrict in, float* __restrict out) {
  for (size_t i = 0; i < kBlock; ++i) out[i] = convert(in[i]);
}
template <Narrow convert>
void narrow_block(const float* __restrict in, uint16_t* __restrict out) {
  for (size_t i = 0; i < kBlock; ++i) out[i] = convert(in[i]);
}
template <Narrow convert>
STOW_WIDE_LOOP void narrow_block_wide(const float* __restrict in, uint16_t* __restrict out) {
  for (size_t i = 0; i < kBlock; ++i) out[i] = convert(in[i]);
}

// Reads a block of n elements from `in` to f32; memory beyond n is not touched.
void widen(DType from, const std::byte* in, size_t n, float* out) {
  if (from == DType::kF32) {
    std::memcpy(out, in, n * sizeof(float));
    return;
  }
  static const bool wide = has_wide_loops();
  uint16_t halves[kBlock] = {};
  std::memcpy(halves, in, n * sizeof(uint16_t));
  if (from == DType::kBF16)
    (wide ? widen_block_wide<bf16_to_f32> : widen_block<bf16_to_f32>)(halves, out);
  else
    (wide ? widen_block_wide<f16_to_f32> : widen_block<f16_to_f32>)(halves, out);
}

// Writes a block of n elements of f32; `in` has kBlock of them.
void narrow(const float* in, size_t n, DType to, std::byte* out) {
  if (to == DType::kF32) {
    std::memcpy(out, in, n * sizeof(float));
    return;
  }
  static const bool wide = has_wide_loops();
  uint16_t halves[kBlock];
  if (to == DType::kBF16)
    (wide ? narrow_block_wide<f32_to_bf16> : narrow_block<f32_to_bf16>)(in, halves);
  else
    (wide ? narrow_block_wide<f32_to_f16> : narrow_block<f32_to_f16>)(in, halves);
  std::memcpy(out, halves, n * sizeof(uint16_t));
}

bool is_known(DType t) {
  return t == DType::kF32 || t == DType::kBF16 || t == DType::kF16;
}

}  // namespace

void convert_floats(DType from, std::span<const std::byte> in, DType to, std::span<std::byte> out) {
  STOW_CHECK(is_known(from) && is_known(to), "{} to {}", dtype_name(from), dtype_name(to));
  const auto in_bytes = static_cast<size_t>(dtype_bytes(from));
  const auto out_bytes = static_cast<size_t>(dtype_bytes(to));
  const size_t n = in.size() / in_bytes;
  STOW_CHECK(in.size() % in_bytes == 0 && out.size() == n * out_bytes, "{} bytes to {}", in.size(),
             out.size());
  if (from == to) {
    if (n) std::memmove(out.data(), in.data(), in.size());
    return;
  }
  float block[kBlock] = {};
  for (size_t at = 0; at < n; at += kBlock) {
    const size_t part = std::min(kBlock, n - at);
    widen(from, in.data() + at * in_bytes, part, block);
    narrow(block, part, to, out.data() + at * out_bytes);
  }
}

void convert_from_f32(std::span<const float> in, DType to, std::byte* out) {
  convert_floats(DType::kF32, std::as_bytes(in), to,
                 std::span(out, in.size() * static_cast<size_t>(dtype_bytes(to))));
}

}  // namespace stow
