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

/// Number of elements of a block: 1 for a float type, else 32 or 256.
int64_t block_elements(GgmlType type);
int64_t block_bytes(GgmlType type);
/// "F32", "Q4_K".
std::string_view ggml_name(GgmlType type);
/// Returns the type that a file denotes by `number`; none if GgmlType lacks it.
std::optional<GgmlType> ggml_type(uint32_t number);
/// Returns the name of the type that a file denotes by `number`, also of types that GgmlType lacks:
/// "Q5_K", "type 99".
std::string ggml_name(uint32_t number);

/// Decodes n blocks into n * block_elements(type) f32 values, with the results of ggml's
/// dequantize_row functions; products and sums are rounded separately.
/// Source: ggml-quants.c; gguf-py, quants.py.
void decode_blocks(GgmlType type, const std::byte* blocks, int64_t n, float* out);

}  // namespace stow
