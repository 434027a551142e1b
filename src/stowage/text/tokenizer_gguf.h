// The tokenizer of a GGUF file, from its metadata.
// Not its weights; see io/gguf_weights.h.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/io/gguf.h"
#include "stowage/text/tokenizer.h"

namespace stow::text {

/// The tokenizer that the entries tokenizer.ggml.* describe, as the tokenizer.json of the same
/// model has it: of the model "gpt2" byte-level BPE, split as tokenizer.ggml.pre names; of "llama"
/// SentencePiece-like BPE, its merges from the file or from its scores.
/// Errors: "PATH: KEY: reason"; other models and splits, by name.
Result<Tokenizer> gguf_tokenizer(const GgufFile& file);

/// The same as the text of a tokenizer.json that Hugging Face's tokenizers read.
Result<Json> gguf_tokenizer_json(const GgufFile& file);

}  // namespace stow::text
