#include "stowage/ir/lexer.h"

#include <fmt/core.h>

namespace stow {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_word_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_word(char c) {
  return is_word_start(c) || is_digit(c);
}

// -1 for what is no hex digit.
int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

std::string printable(char c) {
  return c >= 0x20 && c < 0x7f ? fmt::format("'{}'", c)
                               : fmt::format("byte 0x{:02x}", static_cast<unsigned char>(c));
}

}  // namespace

Lexer::Lexer(std::string_view text) : text_(text) {
  next_ = read();
}

Token Lexer::take() {
  const Token token = next_;
  next_ = read();
  return token;
}

void Lexer::skip_blanks() {
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c == ' ' || c == '\n' || c == '\t' || c == '\r') {
      ++at_;
    } else if (text_.substr(at_, 2) == "//") {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else {
      return;
    }
  }
}

Token Lexer::read() {
  skip_blanks();
  const size_t start = at_;
  if (start == text_.size()) return {TokenKind::kEnd, {}, start};
  const char c = text_[start];
  auto run = [&](auto accept) {
    while (at_ < text_.size() && accept(text_[at_])) ++at_;
    return text_.substr(start, at_ - start);
  };
  if (is_word_start(c)) return {TokenKind::kWord, run(is_word), start};
  if (is_digit(c) || c == '-') {
    ++at_;
    char last = c;
    const std::string_view number = run([&last](char d) {
      const bool exponent_sign = (d == '-' || d == '+') && (last == 'e' || last == 'E');
      last = d;
      return is_word(d) || d == '.' || exponent_sign;
    });
    return {TokenKind::kNumber, number, start};
  }
  ++at_;
  if (c == '%') {
    const std::string_view number = run(is_digit).substr(1);
    if (number.empty()) throw SyntaxError{start, "expected a number after %"};
    return {TokenKind::kValue, number, start};
  }
  if (c == '"') {
    for (; at_ < text_.size() && text_[at_] != '\n'; ++at_) {
      if (text_[at_] == '"')
        return {TokenKind::kString, text_.substr(start + 1, at_++ - start - 1), start};
      if (text_[at_] == '\\' && at_ + 1 < text_.size() && text_[at_ + 1] != '\n') ++at_;
    }
    throw SyntaxError{start, "expected a closing \" on this line"};
  }
  if (std::string_view("(){}[]<>,:=@~").find(c) == std::string_view::npos)
    throw SyntaxError{start, fmt::format("expected a token, found {}", printable(c))};
  return {TokenKind::kPunct, text_.substr(start, 1), start};
}

std::string describe(const Token& token) {
  if (token.kind == TokenKind::kEnd) return "end of text";
  const size_t shown = std::min<size_t>(token.text.size(), 40);
  const char* const cut = shown < token.text.size() ? "…" : "";
  const std::string text = fmt::format("{}{}", token.text.substr(0, shown), cut);
  if (token.kind == TokenKind::kString) return fmt::format("\"{}\"", text);
  return fmt::format("'{}{}'", token.kind == TokenKind::kValue ? "%" : "", text);
}

std::string unescape(const Token& token) {
  std::string out;
  const std::string_view text = token.text;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      out += text[i];
      continue;
    }
    const std::string_view rest = text.substr(i + 1);
    if (!rest.empty() && (rest[0] == '"' || rest[0] == '\\')) {
      out += rest[0];
      i += 1;
    } else if (rest.size() >= 3 && rest[0] == 'x' && hex_digit(rest[1]) >= 0 &&
               hex_digit(rest[2]) >= 0) {
      out += static_cast<char>(hex_digit(rest[1]) * 16 + hex_digit(rest[2]));
      i += 3;
    } else {
      throw SyntaxError{token.offset + 1 + i, "expected \\\", \\\\ or \\xHH (lower-case hex)"};
    }
  }
  return out;
}

}  // namespace stow
