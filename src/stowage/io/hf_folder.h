// Writes a model as a Hugging Face folder that transformers opens.
// Not the tokenizer's files; see text/tokenizer_export.h.
#pragma once

#include <span>
#include <string>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/io/hf_config.h"
#include "stowage/io/safetensors.h"

namespace stow {

/// Writes config.json and model.safetensors into a folder, which is made where it is missing; each
/// file is whole or not there, config.json comes last. `tensors` have Hugging Face names and are
/// those of model_tensors(config), in any order, all of one float dtype, which becomes that of the
/// configuration. Nothing is copied: a tensor's `read` is called piece by piece.
/// Errors: "PATH: reason" of the system; tensors that are missing, surplus, misshaped or of other
/// dtypes; a configuration that config.json cannot express: divisors of frequencies, and biases of
/// q, k and v without one of o in a Llama or Qwen3.
Result<void> write_hf_folder(const std::string& folder, HfConfig config,
                             std::span<const TensorBytes> tensors);

}  // namespace stow
