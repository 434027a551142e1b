// Tiny language models of a test's own: weights by a formula, in a folder as Hugging Face has them.
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

/// n numbers of [-1, 1), multiples of 2^-23: SplitMix64 of FNV-1a of the name plus the index.
std::vector<float> uniform_of_name(std::string_view name, int64_t n);
/// `n` token ids below `vocab`, those of make_lm.py.
std::vector<int32_t> formula_tokens(int64_t n, int64_t vocab);

/// The configuration tests/data/lm/NAME.json.
HfConfig lm_config(const std::string& name);
/// A llama of 2 layers, width 32, 4 heads, 2 key heads and a vocabulary of 80.
HfConfig small_lm_config();
/// Writes config.json and model.safetensors, weights by the formula, into a folder that exists.
void write_lm(const std::string& folder, const HfConfig& config, DType dtype = DType::kF32);
/// Copies a byte-level tokenizer of 600 tokens, tests/data/tokenizers/gpt2.json, with a chat template
/// and "<|im_end|>" (3) as the end; for models of that vocabulary or more.
void write_lm_tokenizer(const std::string& folder);

/// Whole rows of one length.
lm::TokenRows whole_rows(const std::vector<std::vector<int32_t>>& rows);
/// Rows of any lengths, padded to `width` on one side with token 0.
lm::TokenRows padded_rows(const std::vector<std::vector<int32_t>>& rows, int64_t width, bool left);

/// Peaks that a device has measured.
BytesByKind measured_peaks(const Device& device);

}  // namespace stow
