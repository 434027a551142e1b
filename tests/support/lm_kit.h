// Tiny language models for tests: Hugging Face folders with weights from a formula.
// Not trained and not random: tests/data/make_lm.py computes the same weights for the goldens.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/io/hf_config.h"
#include "stowage/lm/score.h"

namespace stow {

/// Returns n numbers in [-1, 1), multiples of 2^-23: SplitMix64 of FNV-1a of the name plus the
/// index.
std::vector<float> uniform_of_name(std::string_view name, int64_t n);
/// Returns `n` token ids below `vocab`, the same as make_lm.py.
std::vector<int32_t> formula_tokens(int64_t n, int64_t vocab);

/// Returns the configuration in tests/data/lm/NAME.json.
HfConfig lm_config(const std::string& name);
/// Returns a llama with 2 layers, width 32, 4 heads, 2 key heads and a vocabulary of 80.
HfConfig small_lm_config();
/// Writes config.json and model.safetensors, weights by the formula, into a folder that exists.
void write_lm(const std::string& folder, const HfConfig& config, DType dtype = DType::kF32);
/// Writes a byte-level tokenizer of 600 tokens, tests/data/tokenizers/gpt2.json, with a chat
/// template and the end token "<|im_end|>" (3). The model's vocabulary must have at least 600
/// tokens.
void write_lm_tokenizer(const std::string& folder);

/// Returns rows of one length, without padding.
lm::TokenRows whole_rows(const std::vector<std::vector<int32_t>>& rows);
/// Returns rows of any lengths, padded to `width` with token 0 on the left or on the right.
lm::TokenRows padded_rows(const std::vector<std::vector<int32_t>>& rows, int64_t width, bool left);

/// Returns the device's high-water marks.
BytesByKind measured_peaks(const Device& device);

}  // namespace stow
