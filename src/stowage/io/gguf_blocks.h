// Blocks of ggml's tensor types: their sizes and their values in f32.
// Not files; see gguf.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace stow {

enum class GgmlType : uint8_t { kF32, kF16, kBF16, kQ4_0, kQ4_1, kQ8_0, kQ4_K, kQ6_K };

/// Elements of a block: 1 of a float type, else 32 or 256.
int64_t block_elements(GgmlType type);
int64_t block_bytes(GgmlType type);
/// "F32", "Q4_K".
std::string_view ggml_name(GgmlType type);
/// The type of a number in a file.
std::optional<GgmlType> ggml_type(uint32_t number);
/// The name of a number in a file, of types that are not in GgmlType too: "Q5_K", "type 99".
std::string ggml_name(uint32_t number);

/// The values of n blocks, n * block_elements(type) of them: as ggml's dequantize_row functions,
/// with products and sums rounded apart.
/// Source: ggml-quants.c; gguf-py, quants.py.
void decode_blocks(GgmlType type, const std::byte* blocks, int64_t n, float* out);

}  // namespace stow
