// Tokens of the graph text, read one at a time.
// Not its grammar; that is ir/parse.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace stow {

/// A syntax error: the byte offset and the message.
struct SyntaxError {
  size_t offset = 0;
  std::string message;
};

enum class TokenKind : uint8_t {
  kEnd,
  kWord,    ///< A letter or _, then letters, digits and _.
  kNumber,  ///< A digit or -, then letters, digits and dots (and a sign after e): 1e-5, -inf.
  kValue,   ///< %7; the text is "7".
  kString,  ///< Quoted; the text lies between the quotes and still has its escapes.
  kPunct    ///< One character of ( ) { } [ ] < > , : = @ ~.
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string_view text;
  size_t offset = 0;  ///< Byte offset of its first character in the text.
};

/// Splits a text into tokens, one token ahead. Comments run from // to the end of the line.
class Lexer {
 public:
  /// Throws SyntaxError when the text does not begin with a token.
  explicit Lexer(std::string_view text);

  const Token& peek() const { return next_; }
  /// Returns the token ahead and reads another. Throws SyntaxError.
  Token take();

 private:
  void skip_blanks();
  Token read();

  std::string_view text_;
  size_t at_ = 0;
  Token next_;
};

/// A token as messages name it: "'foo'", "end of text".
std::string describe(const Token& token);

/// Returns the text of a string token with its escapes resolved. Throws SyntaxError.
std::string unescape(const Token& token);

}  // namespace stow
