#include "stowage/io/gguf_blocks.h"

#include <fmt/core.h>

#include <array>
#include <cstring>

#include "stowage/io/float_convert.h"

namespace stow {
namespace {

struct TypeInfo {
  std::string_view name;
  uint32_t number;
  int64_t elements, bytes;
};

// In the order of GgmlType. Source: ggml.h, enum ggml_type; ggml-common.h.
constexpr std::array<TypeInfo, 8> kTypes = {{{"F32", 0, 1, 4},
                                             {"F16", 1, 1, 2},
                                             {"BF16", 30, 1, 2},
                                             {"Q4_0", 2, 32, 18},
                                             {"Q4_1", 3, 32, 20},
                                             {"Q8_0", 8, 32, 34},
                                             {"Q4_K", 12, 256, 144},
                                             {"Q6_K", 14, 256, 210}}};

// Types that are known and not read.
constexpr std::array<std::pair<uint32_t, std::string_view>, 25> kOthers = {
    {{6, "Q5_0"},   {7, "Q5_1"},    {9, "Q8_1"},     {10, "Q2_K"},   {11, "Q3_K"},
     {13, "Q5_K"},  {15, "Q8_K"},   {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"},
     {19, "IQ1_S"}, {20, "IQ4_NL"}, {21, "IQ3_S"},   {22, "IQ2_S"},  {23, "IQ4_XS"},
     {24, "I8"},    {25, "I16"},    {26, "I32"},     {27, "I64"},    {28, "F64"},
     {29, "IQ1_M"}, {34, "TQ1_0"},  {35, "TQ2_0"},   {39, "MXFP4"},  {40, "NVFP4"}}};

float half_at(const uint8_t* at) {
  uint16_t half;
  std::memcpy(&half, at, sizeof half);
  return f16_to_f32(half);
}

// Loops have constant lengths and local arrays, so that they become vectors without checks.

// 16 bytes of two nibbles: the low ones are elements 0 to 15, the high ones 16 to 31.
void q4(const uint8_t* q, float scale, float bias, float* out) {
  uint8_t packed[16];
  std::memcpy(packed, q, sizeof packed);
  float values[32];
  for (int i = 0; i < 16; ++i) values[i] = static_cast<float>(packed[i] & 15) * scale;
  for (int i = 0; i < 16; ++i) values[i + 16] = static_cast<float>(packed[i] >> 4) * scale;
  for (int i = 0; i < 32; ++i) out[i] = values[i] + bias;
}

void decode_q4_0(const uint8_t* block, float* out) {
  const float d = half_at(block);
  uint8_t packed[16];
  std::memcpy(packed, block + 2, sizeof packed);
  for (int i = 0; i < 16; ++i) out[i] = static_cast<float>((packed[i] & 15) - 8) * d;
  for (int i = 0; i < 16; ++i) out[i + 16] = static_cast<float>((packed[i] >> 4) - 8) * d;
}

void decode_q4_1(const uint8_t* block, float* out) {
  q4(block + 4, half_at(block), half_at(block + 2), out);
}

void decode_q8_0(const uint8_t* block, float* out) {
  const float d = half_at(block);
  int8_t q[32];
  std::memcpy(q, block + 2, sizeof q);
  for (int i = 0; i < 32; ++i) out[i] = static_cast<float>(q[i]) * d;
}

// d, dmin; 8 scales and 8 minima of 6 bits in 12 bytes; 128 bytes of nibbles, of which 32 hold two
// sub-blocks of 32 elements.
void decode_q4_k(const uint8_t* block, float* out) {
  const float d = half_at(block), dmin = half_at(block + 2);
  const uint8_t* s = block + 4;
  for (int j = 0; j < 8; ++j) {
    const int scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | ((s[j - 4] >> 6) << 4);
    const int least = j < 4 ? s[j + 4] & 63 : (s[j + 4] >> 4) | ((s[j] >> 6) << 4);
    const float by = d * static_cast<float>(scale), less = dmin * static_cast<float>(least);
    uint8_t packed[32];
    std::memcpy(packed, block + 16 + 32 * (j / 2), sizeof packed);
    float* to = out + 32 * j;
    if (j % 2 == 0)
      for (int i = 0; i < 32; ++i) to[i] = by * static_cast<float>(packed[i] & 15) - less;
    else
      for (int i = 0; i < 32; ++i) to[i] = by * static_cast<float>(packed[i] >> 4) - less;
  }
}

// 128 bytes of low nibbles, 64 bytes of high pairs of bits, 16 scales of 8 bits, d. Each half of
// the block has four groups of 32 elements.
void decode_q6_k(const uint8_t* block, float* out) {
  const float d = half_at(block + 208);
  int8_t scales[16];
  std::memcpy(scales, block + 192, sizeof scales);
  for (int half = 0; half < 2; ++half) {
    uint8_t low[64], high[32];
    std::memcpy(low, block + 64 * half, sizeof low);
    std::memcpy(high, block + 128 + 32 * half, sizeof high);
    for (int group = 0; group < 4; ++group) {
      int8_t q[32];
      const uint8_t* from = low + 32 * (group % 2);
      const int nibble = 4 * (group / 2), pair = 2 * group;
      for (int i = 0; i < 32; ++i)
        q[i] =
            static_cast<int8_t>((((from[i] >> nibble) & 15) | (((high[i] >> pair) & 3) << 4)) - 32);
      const int8_t* scale = scales + 8 * half + 2 * group;
      const float first = d * static_cast<float>(scale[0]);
      const float second = d * static_cast<float>(scale[1]);
      float* to = out + 128 * half + 32 * group;
      for (int i = 0; i < 16; ++i) to[i] = first * static_cast<float>(q[i]);
      for (int i = 16; i < 32; ++i) to[i] = second * static_cast<float>(q[i]);
    }
  }
}

template <void (*decode)(const uint8_t*, float*), int64_t kElements, int64_t kBytes>
void decode_all(const uint8_t* in, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    // A block of its own: `out` may not be what `in` points to, which compilers cannot know.
    float values[kElements];
    decode(in + i * kBytes, values);
    std::memcpy(out + i * kElements, values, sizeof values);
  }
}

}  // namespace

int64_t block_elements(GgmlType type) {
  return kTypes[static_cast<size_t>(type)].elements;
}

int64_t block_bytes(GgmlType type) {
  return kTypes[static_cast<size_t>(type)].bytes;
}

std::string_view ggml_name(GgmlType type) {
  return kTypes[static_cast<size_t>(type)].name;
}

std::optional<GgmlType> ggml_type(uint32_t number) {
  for (size_t i = 0; i < kTypes.size(); ++i)
    if (kTypes[i].number == number) return static_cast<GgmlType>(i);
  return std::nullopt;
}

std::string ggml_name(uint32_t number) {
  if (const std::optional<GgmlType> type = ggml_type(number)) return std::string(ggml_name(*type));
  for (const auto& [other, name] : kOthers)
    if (other == number) return std::string(name);
  return fmt::format("type {}", number);
}

void decode_blocks(GgmlType type, const std::byte* blocks, int64_t n, float* out) {
  const auto* in = reinterpret_cast<const uint8_t*>(blocks);
  switch (type) {
    case GgmlType::kF32:
      if (n) std::memcpy(out, blocks, static_cast<size_t>(n) * sizeof(float));
      return;
    case GgmlType::kF16:
    case GgmlType::kBF16: {
      const auto bytes = static_cast<size_t>(n) * 2;
      convert_floats(type == GgmlType::kF16 ? DType::kF16 : DType::kBF16, {blocks, bytes},
                     DType::kF32, {reinterpret_cast<std::byte*>(out), 2 * bytes});
      return;
    }
    case GgmlType::kQ4_0:
      return decode_all<decode_q4_0, 32, 18>(in, n, out);
    case GgmlType::kQ4_1:
      return decode_all<decode_q4_1, 32, 20>(in, n, out);
    case GgmlType::kQ8_0:
      return decode_all<decode_q8_0, 32, 34>(in, n, out);
    case GgmlType::kQ4_K:
      return decode_all<decode_q4_k, 256, 144>(in, n, out);
    case GgmlType::kQ6_K:
      return decode_all<decode_q6_k, 256, 210>(in, n, out);
  }
}

}  // namespace stow
