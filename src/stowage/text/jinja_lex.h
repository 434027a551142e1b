// The tokens of a template: text, tags and what stands inside them.
// Not their grammar; see jinja_parse.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace stow::text::jinja {

enum class TokenKind : uint8_t {
  kText,
  kBegin,
  kEnd,
  kPrintBegin,
  kPrintEnd,
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

/// The tokens of a template, the last of them kEof. White space around tags is as Jinja2 leaves it
/// with trim_blocks and lstrip_blocks. Throws Error with the line for what is no token.
std::vector<Token> lex(std::string_view source);

/// Throws Error: "line N: message".
[[noreturn]] void syntax_error(int line, std::string_view message);

}  // namespace stow::text::jinja
