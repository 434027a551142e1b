#include "stowage/ir/token_reader.h"

#include <algorithm>
#include <charconv>

namespace stow {

Failure failure_at(std::string_view text, std::string_view file, const SyntaxError& e) {
  const std::string_view before = text.substr(0, e.offset);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t newline = before.rfind('\n');
  const size_t column = newline == std::string_view::npos ? e.offset + 1 : e.offset - newline;
  return fail("{}:{}:{}: {}", file, line, column, e.message);
}

void TokenReader::unexpected(std::string_view expected) const {
  error(offset(), "expected {}, found {}", expected, describe(peek()));
}

bool TokenReader::at_punct(char c) const {
  return peek().kind == TokenKind::kPunct && peek().text[0] == c;
}
bool TokenReader::at_word(std::string_view word) const {
  return peek().kind == TokenKind::kWord && peek().text == word;
}
bool TokenReader::take_punct(char c) {
  const bool here = at_punct(c);
  if (here) take();
  return here;
}
bool TokenReader::take_word(std::string_view word) {
  const bool here = at_word(word);
  if (here) take();
  return here;
}
void TokenReader::expect(char c) {
  if (!take_punct(c)) unexpected(fmt::format("'{}'", c));
}

Token TokenReader::take(TokenKind kind, std::string_view expected) {
  if (peek().kind != kind) unexpected(expected);
  return take();
}

std::string TokenReader::string(std::string_view expected) {
  return unescape(take(TokenKind::kString, expected));
}

int64_t TokenReader::integer(int64_t min, int64_t max, std::string_view expected) {
  if (peek().kind != TokenKind::kNumber) unexpected(expected);
  const std::string_view text = peek().text;
  int64_t value = 0;
  const auto [stop, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code == std::errc::invalid_argument || stop != text.data() + text.size())
    unexpected(expected);
  if (code != std::errc() || value < min || value > max)
    error(offset(), "expected {} from {} to {}, found {}", expected, min, max, describe(peek()));
  take();
  return value;
}

}  // namespace stow
