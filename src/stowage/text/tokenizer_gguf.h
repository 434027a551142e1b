// The tokenizer of a GGUF file, from its metadata.
// Not its weights; see io/gguf_weights.h.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/io/gguf.h"
#include "stowage/text/tokenizer.h"

namespace stow::text {

/// Returns the tokenizer that the metadata tokenizer.ggml.* describes; it tokenizes like the
/// tokenizer.json of the same model. tokenizer.ggml.model "gpt2": byte-level BPE with the split
/// that tokenizer.ggml.pre names. "llama": SentencePiece-like BPE with merges from the file or
/// derived from its scores.
/// Errors: "PATH: KEY: reason", also for other models and splits (by name).
Result<Tokenizer> gguf_tokenizer(const GgufFile& file);

/// Returns the tokenizer as a tokenizer.json that Hugging Face's tokenizers can read.
Result<Json> gguf_tokenizer_json(const GgufFile& file);

}  // namespace stow::text
