// TokenizerFolder: the tokenizer, chat template and special tokens of a model folder.
// Not its weights.
#pragma once

#include <optional>
#include <string>

#include "stowage/base/inside.h"
#include "stowage/text/chat_template.h"
#include "stowage/text/tokenizer.h"

namespace stow::text {

/// The tokenizer and the chat template of a Hugging Face folder or a GGUF file.
struct TokenizerFolder {
  Tokenizer tokenizer;
  std::optional<ChatTemplate> chat_template;
  /// Template variables for special tokens: {"bos_token": "<s>", …}.
  Json special_tokens = Json::object();

  /// Reads tokenizer.json and, if they exist, tokenizer_config.json and chat_template.jinja, which
  /// takes precedence over the template in tokenizer_config.json; or the metadata of a GGUF file.
  /// Errors: "FILE: KEY: reason".
  static Result<TokenizerFolder> load(const std::string& path);

  /// Returns a conversation as the text that the model continues. `messages`: an array of objects
  /// with `role` and `content`. `tools`: may be null. The text contains its special tokens: encode
  /// it with add_special_tokens = false.
  /// Errors: there is no template; those of ChatTemplate::render().
  Result<std::string> render_chat(const Json& messages, const Json& tools = nullptr,
                                  bool add_generation_prompt = true) const;
};

}  // namespace stow::text
