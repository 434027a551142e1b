// ChatTemplate: renders a conversation as the text that a model was trained on.
// Not a general template engine: it has the part of Jinja2 that chat templates of real models use.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "stowage/base/inside.h"
#include "stowage/io/json.h"

namespace stow::text {

/// A chat template as Hugging Face renders it: Jinja2 with trim_blocks, lstrip_blocks, loop
/// controls and the sandbox in which values are immutable. Cheap to copy; thread-safe.
/// Source: transformers, utils/chat_template_utils.py; Jinja2's documentation.
class ChatTemplate {
 public:
  /// Errors: wrong syntax, or an unsupported construct (by name), with the line.
  static Result<ChatTemplate> parse(std::string_view source);

  /// Renders the template. `variables`: an object with `messages` and other variables that the
  /// template reads, such as `add_generation_prompt`, `tools`, `bos_token`, `eos_token`.
  /// Errors: "line N: reason"; an exception that the template raises; steps, depth or output beyond
  /// jinja::Limits.
  Result<std::string> render(const Json& variables) const;

 private:
  struct Parsed;
  explicit ChatTemplate(std::shared_ptr<const Parsed> parsed) : parsed_(std::move(parsed)) {}
  std::shared_ptr<const Parsed> parsed_;
};

}  // namespace stow::text
