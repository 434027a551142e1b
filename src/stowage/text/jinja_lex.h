// The lexer of templates: text, tags and the tokens inside tags.
// Not their grammar; see jinja_parse.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace stow::text::jinja {

enum class TokenKind : uint8_t {
  kText,        ///< Text outside of tags.
  kBegin,       ///< {%
  kEnd,         ///< %}
  kPrintBegin,  ///< {{
  kPrintEnd,    ///< }}
  kName,
  kString,
  kInteger,
  kFloat,
  kSymbol,
  kEof
};
struct Token {
  TokenKind kind = TokenKind::kEof;
  std::string text;
  int line = 1;
};

/// Returns the tokens of a template, the last of which is kEof. White space around tags is trimmed
/// as by Jinja2 with trim_blocks and lstrip_blocks. Throws Error with the line for an invalid
/// token.
std::vector<Token> lex(std::string_view source);

/// Throws Error: "line N: message".
[[noreturn]] void syntax_error(int line, std::string_view message);

}  // namespace stow::text::jinja
