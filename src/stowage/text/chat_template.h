// ChatTemplate: a conversation as the text that a model was trained on.
// Not a general template engine: the part of Jinja2 that chat templates of real models use.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "stowage/base/inside.h"
#include "stowage/io/json.h"

namespace stow::text {

/// A chat template as Hugging Face renders it: Jinja2 with trim_blocks, lstrip_blocks, loop
/// controls and the sandbox that keeps values from being changed. Cheap to copy; safe for use by
/// several threads. Source: transformers, utils/chat_template_utils.py; Jinja2's documentation.
class ChatTemplate {
 public:
  /// Errors: wrong syntax or what is not supported, by name, with the line.
  static Result<ChatTemplate> parse(std::string_view source);

  /// The text of a template over variables: an object with `messages` and what else the template
  /// reads, as `add_generation_prompt`, `tools`, `bos_token`, `eos_token`. Errors: "line N:
  /// reason"; what the template itself raises; more steps, depth or output than the limits.
  Result<std::string> render(const Json& variables) const;

 private:
  struct Parsed;
  explicit ChatTemplate(std::shared_ptr<const Parsed> parsed) : parsed_(std::move(parsed)) {}
  std::shared_ptr<const Parsed> parsed_;
};

}  // namespace stow::text
