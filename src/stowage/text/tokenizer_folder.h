// The text side of a model folder: its tokenizer, its chat template and the names of its special
// tokens. Not its weights.
#pragma once

#include <optional>
#include <string>

#include "stowage/base/inside.h"
#include "stowage/text/chat_template.h"
#include "stowage/text/tokenizer.h"

namespace stow::text {

/// The texts of a Hugging Face folder or a GGUF file: tokenizer and chat template.
struct TokenizerFolder {
  Tokenizer tokenizer;
  std::optional<ChatTemplate> chat_template;
  /// {"bos_token": "<s>", …}: what templates read by name.
  Json special_tokens = Json::object();

  /// Reads tokenizer.json and, where they are there, tokenizer_config.json and chat_template.jinja,
  /// which goes before the template in tokenizer_config.json; or the metadata of a GGUF file.
  /// Errors: "FILE: KEY: reason".
  static Result<TokenizerFolder> load(const std::string& path);

  /// A conversation as the text that the model continues: `messages` is an array of objects with
  /// `role` and `content`; `tools` may be null. The text has its special tokens: encode it without
  /// more. Errors: there is no template; what the template raises.
  Result<std::string> render_chat(const Json& messages, const Json& tools = nullptr,
                                  bool add_generation_prompt = true) const;
};

}  // namespace stow::text
