// TokenReader: reads tokens of a text: expected ones, lists, integers, with errors.
// Not a grammar; ir/field_reader.h and ir/parse.cpp build on it.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/ir/lexer.h"

namespace stow {

/// Returns the failure "file:line:column: message", columns in bytes from 1.
Failure failure_at(std::string_view text, std::string_view file, const SyntaxError& error);

/// All functions throw SyntaxError at the token that is not what was expected.
class TokenReader {
 public:
  explicit TokenReader(std::string_view text) : lexer_(text) {}

  const Token& peek() const { return lexer_.peek(); }
  size_t offset() const { return peek().offset; }
  Token take() { return lexer_.take(); }
  /// Takes the next token, which must be of that kind; `expected` names it in the error.
  Token take(TokenKind kind, std::string_view expected);
  /// True if the next token is that character, or that word.
  bool at_punct(char c) const;
  bool at_word(std::string_view word) const;
  /// Takes the next token if it is that character, or that word. Returns true if it was.
  bool take_punct(char c);
  bool take_word(std::string_view word);
  /// Takes the next token, which must be that character.
  void expect(char c);

  /// Takes a quoted string and resolves its escapes.
  std::string string(std::string_view expected);
  /// Takes an integer in [min, max].
  int64_t integer(int64_t min, int64_t max, std::string_view expected);
  /// Takes items separated by commas, each by a call of item(), and `close`.
  template <typename Item>
  void list(char close, Item item) {
    if (take_punct(close)) return;
    do item();
    while (take_punct(','));
    if (!take_punct(close)) unexpected(fmt::format("',' or '{}'", close));
  }

  template <typename... Args>
  [[noreturn]] void error(size_t offset, fmt::format_string<Args...> format, Args&&... args) const {
    throw SyntaxError{offset, fmt::format(format, std::forward<Args>(args)...)};
  }
  /// Throws "expected …, found <the token ahead>".
  [[noreturn]] void unexpected(std::string_view expected) const;

 private:
  Lexer lexer_;
};

}  // namespace stow
