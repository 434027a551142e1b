// Writes the tokenizer of a model into a Hugging Face folder.
// Not the model; see io/hf_folder.h.
#pragma once

#include <string>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"

namespace stow::text {

/// Writes the tokenizer's files of a model, a Hugging Face folder or a GGUF file, into `folder`,
/// which is there. Of a folder the files are copied as they are, generation_config.json with them;
/// of a GGUF file tokenizer.json and tokenizer_config.json are made. A folder without a tokenizer
/// gives none. Errors: "PATH: reason".
Result<void> write_tokenizer_files(const std::string& model, const std::string& folder);

}  // namespace stow::text
