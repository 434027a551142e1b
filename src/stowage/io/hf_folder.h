// Writes a model as a Hugging Face folder that transformers can open.
// Not the tokenizer's files; see text/tokenizer_export.h.
#pragma once

#include <span>
#include <string>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/io/hf_config.h"
#include "stowage/io/safetensors.h"

namespace stow {

/// Writes model.safetensors and then config.json into a folder, and creates it if it is missing.
/// Each file is written atomically. `tensors` are those of model_tensors(config), in any order,
/// with Hugging Face names and one common float dtype, which becomes the configuration's. Tensors
/// are not copied as a whole: their `read` is called piece by piece.
/// Errors: "PATH: reason" of the system; tensors that are missing, surplus, or of another shape or
/// dtype; a configuration that config.json cannot express: divisors of frequencies, or in a Llama
/// or Qwen3 biases of q, k and v without a bias of o.
Result<void> write_hf_folder(const std::string& folder, HfConfig config,
                             std::span<const TensorBytes> tensors);

}  // namespace stow
