// write_tokenizer_files: writes the tokenizer of a model into a Hugging Face folder.
// Not the model; see io/hf_folder.h.
#pragma once

#include <string>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"

namespace stow::text {

/// Writes the tokenizer files of `model`, a Hugging Face folder or a GGUF file, into `folder`,
/// which must exist. From a Hugging Face folder, copies the files that it has,
/// generation_config.json included. From a GGUF file, makes tokenizer.json and
/// tokenizer_config.json. Errors: "PATH: reason".
Result<void> write_tokenizer_files(const std::string& model, const std::string& folder);

}  // namespace stow::text
