// The weights and configuration of a model in a GGUF file, converted to Hugging Face's conventions.
// Not its tokenizer; see text/tokenizer_gguf.h.
#pragma once

#include <memory>
#include <string>

#include "stowage/io/gguf.h"
#include "stowage/io/weights.h"

namespace stow {

/// Returns the configuration of a model of the architecture llama, qwen2 or qwen3, from the
/// metadata of a GGUF file and the names of its tensors (biases, a tied head, rope_freqs). Errors:
/// "PATH: KEY: reason".
Result<HfConfig> gguf_config(const GgufFile& file);

/// Opens a GGUF file as weights. Tensors have Hugging Face names. Quantized tensors are decoded
/// when they are read. The rows of llama's q and k, which llama.cpp permutes, are in their original
/// order.
/// Errors: those of GgufFile::open and gguf_config; tensors that do not match the configuration.
Result<std::unique_ptr<WeightSource>> open_gguf(const std::string& path);

}  // namespace stow
