// The weights and the configuration of a model in a GGUF file, as those of a Hugging Face folder.
// Not its tokenizer; see text/tokenizer_gguf.h.
#pragma once

#include <memory>
#include <string>

#include "stowage/io/gguf.h"
#include "stowage/io/weights.h"

namespace stow {

/// The configuration of a model from the metadata of a GGUF file of the architectures llama, qwen2
/// and qwen3, and from the names of its tensors: biases, a tied head, rope_freqs. Errors: "PATH:
/// KEY: reason".
Result<HfConfig> gguf_config(const GgufFile& file);

/// Opens a GGUF file as weights: tensors have Hugging Face names, quantized ones are decoded when
/// they are read, and the rows of llama's q and k, which llama.cpp has permuted, stand in their own
/// order again. Errors: those of GgufFile::open and gguf_config; tensors that are not those of the
/// configuration.
Result<std::unique_ptr<WeightSource>> open_gguf(const std::string& path);

}  // namespace stow
