#include "stowage/text/jinja_lex.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "stowage/text/jinja_value.h"
#include "stowage/text/unicode.h"

namespace stow::text::jinja {
namespace {

bool is_name_start(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) || c == '_';
}
bool is_name_char(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
}
bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v';
}

// Cuts a template into text, tags and the tokens inside them. Whitespace rules: Jinja2's
// documentation, "Whitespace Control", with trim_blocks and lstrip_blocks.
class Lexer {
 public:
  explicit Lexer(std::string_view source) {
    // Line ends are \n, and the last one is not part of the template.
    for (size_t i = 0; i < source.size(); ++i) {
      if (source[i] == '\r') {
        if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
        in_ += '\n';
      } else {
        in_ += source[i];
      }
    }
    if (in_.ends_with('\n')) in_.pop_back();
  }

  std::vector<Token> run() {
    while (at_ < in_.size()) text();
    tokens_.push_back({TokenKind::kEof, "", line_});
    return std::move(tokens_);
  }

 private:
  bool starts(std::string_view word) const { return in_.compare(at_, word.size(), word) == 0; }
  void advance(size_t n) {
    line_ += static_cast<int>(std::count(in_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         in_.begin() + static_cast<std::ptrdiff_t>(at_ + n), '\n'));
    at_ += n;
  }
  void push(TokenKind kind, std::string text = {}) {
    tokens_.push_back({kind, std::move(text), line_});
  }

  // The text up to the next tag, and the tag.
  void text() {
    size_t open = in_.size();
    for (size_t i = at_; i + 1 < in_.size(); ++i)
      if (in_[i] == '{' && (in_[i + 1] == '{' || in_[i + 1] == '%' || in_[i + 1] == '#')) {
        open = i;
        break;
      }
    std::string text = in_.substr(at_, open - at_);
    if (strip_left_) text.erase(0, std::min(text.size(), text.find_first_not_of(" \t\n\r\f\v")));
    if (trim_newline_ && text.starts_with('\n')) text.erase(0, 1);
    const bool after_newline_only = open == at_ ? at_ == 0 || in_[at_ - 1] == '\n' : true;
    strip_left_ = trim_newline_ = false;
    if (open < in_.size()) {
      const char sign = open + 2 < in_.size() ? in_[open + 2] : '\0';
      if (sign == '-') {
        text.erase(text.find_last_not_of(" \t\n\r\f\v") + 1);
      } else if (sign != '+' && in_[open + 1] != '{') {
        // Blanks before a statement or comment that begins its line are dropped.
        const size_t line_begin = text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1;
        const bool begins_line = line_begin > 0 || begins_source_line(at_, open);
        if (begins_line && after_newline_only &&
            text.find_first_not_of(" \t\f\v", line_begin) == std::string::npos)
          text.erase(line_begin);
      }
    }
    if (!text.empty()) push(TokenKind::kText, std::move(text));
    advance(open - at_);
    if (open == in_.size()) return;
    if (starts("{#"))
      comment();
    else
      tag(starts("{%"));
  }

  // True if nothing but blanks stands between the begin of a line of the source and `open`.
  bool begins_source_line(size_t from, size_t open) const {
    for (size_t i = open; i > from; --i)
      if (in_[i - 1] == '\n') return true;
    return from == 0 || in_[from - 1] == '\n';
  }

  void comment() {
    const size_t end = in_.find("#}", at_ + 2);
    if (end == std::string::npos) syntax_error(line_, "a comment has no end");
    close(in_[end - 1], true);
    advance(end + 2 - at_);
  }

  void close(char sign, bool is_statement) {
    strip_left_ = sign == '-';
    trim_newline_ = is_statement && sign != '+' && sign != '-';
  }

  void tag(bool is_statement) {
    const int begin_line = line_;
    const std::string_view end = is_statement ? "%}" : "}}";
    push(is_statement ? TokenKind::kBegin : TokenKind::kPrintBegin);
    advance(2);
    if (at_ < in_.size() && (in_[at_] == '-' || in_[at_] == '+')) advance(1);
    if (is_statement && raw()) return;
    int nesting = 0;
    for (;;) {
      while (at_ < in_.size() && is_blank(in_[at_])) advance(1);
      if (at_ >= in_.size()) syntax_error(begin_line, "a tag has no end");
      const bool signed_end =
          (in_[at_] == '-' || in_[at_] == '+') && in_.compare(at_ + 1, 2, end) == 0;
      if (nesting == 0 && (starts(end) || signed_end)) {
        close(signed_end ? in_[at_] : '\0', is_statement);
        push(is_statement ? TokenKind::kEnd : TokenKind::kPrintEnd);
        advance(signed_end ? 3 : 2);
        return;
      }
      token(nesting);
    }
  }

  // {% raw %} … {% endraw %}
  bool raw() {
    size_t i = at_;
    while (i < in_.size() && is_blank(in_[i])) ++i;
    if (in_.compare(i, 3, "raw") != 0 || (i + 3 < in_.size() && is_name_char(in_[i + 3])))
      return false;
    syntax_error(line_, "the statement raw is not supported");
  }

  void token(int& nesting) {
    const char c = in_[at_];
    if (is_name_start(c)) {
      size_t end = at_;
      while (end < in_.size() && is_name_char(in_[end])) ++end;
      push(TokenKind::kName, in_.substr(at_, end - at_));
      return advance(end - at_);
    }
    if (std::isdigit(static_cast<unsigned char>(c))) return number();
    if (c == '\'' || c == '"') return string(c);
    for (const std::string_view two : {"==", "!=", "<=", ">=", "//", "**"})
      if (starts(two)) {
        push(TokenKind::kSymbol, std::string(two));
        return advance(2);
      }
    if (std::string_view("+-*/%~<>=()[]{}.,:|;").find(c) == std::string_view::npos)
      syntax_error(line_, fmt::format("unexpected character '{}'", c));
    if (c == '(' || c == '[' || c == '{') ++nesting;
    if (c == ')' || c == ']' || c == '}') --nesting;
    push(TokenKind::kSymbol, std::string(1, c));
    advance(1);
  }

  void number() {
    size_t end = at_;
    bool is_float = false;
    const auto digits = [&] {
      while (end < in_.size() &&
             (std::isdigit(static_cast<unsigned char>(in_[end])) || in_[end] == '_'))
        ++end;
    };
    const auto digit_at = [&](size_t i) {
      return i < in_.size() && std::isdigit(static_cast<unsigned char>(in_[i]));
    };
    digits();
    if (end < in_.size() && in_[end] == '.' && digit_at(end + 1)) {
      is_float = true;
      ++end;
      digits();
    }
    if (end < in_.size() && (in_[end] == 'e' || in_[end] == 'E')) {
      const size_t after =
          end + 1 < in_.size() && (in_[end + 1] == '+' || in_[end + 1] == '-') ? end + 2 : end + 1;
      if (digit_at(after)) {
        is_float = true;
        end = after;
        digits();
      }
    }
    std::string text = in_.substr(at_, end - at_);
    std::erase(text, '_');
    push(is_float ? TokenKind::kFloat : TokenKind::kInteger, std::move(text));
    advance(end - at_);
  }

  void string(char quote) {
    const int begin_line = line_;
    std::string out;
    size_t i = at_ + 1;
    const auto hex = [&](size_t n) {
      uint32_t code = 0;
      const char* begin = in_.data() + i + 1;
      if (i + n >= in_.size() || std::from_chars(begin, begin + n, code, 16).ptr != begin + n ||
          code > 0x10FFFF)
        syntax_error(begin_line, "a text has a wrong escape");
      i += n;
      append_utf8(out, code);
    };
    for (;; ++i) {
      if (i >= in_.size()) syntax_error(begin_line, "a text has no end");
      if (in_[i] == quote) break;
      if (in_[i] != '\\') {
        out += in_[i];
        continue;
      }
      if (++i >= in_.size()) syntax_error(begin_line, "a text has no end");
      switch (in_[i]) {
        case 'n':
          out += '\n';
          break;
        case 't':
          out += '\t';
          break;
        case 'r':
          out += '\r';
          break;
        case 'b':
          out += '\b';
          break;
        case 'f':
          out += '\f';
          break;
        case 'v':
          out += '\v';
          break;
        case 'a':
          out += '\a';
          break;
        case '0':
          out += '\0';
          break;
        case '\n':
          break;
        case 'x':
          hex(2);
          break;
        case 'u':
          hex(4);
          break;
        case 'U':
          hex(8);
          break;
        case '\\':
        case '\'':
        case '"':
          out += in_[i];
          break;
        default:
          out += '\\', out += in_[i];
      }
    }
    push(TokenKind::kString, std::move(out));
    advance(i + 1 - at_);
  }

  std::string in_;
  size_t at_ = 0;
  int line_ = 1;
  bool strip_left_ = false, trim_newline_ = false;
  std::vector<Token> tokens_;
};

}  // namespace

void syntax_error(int line, std::string_view message) {
  throw Error(fmt::format("line {}: {}", line, message));
}

std::vector<Token> lex(std::string_view source) {
  return Lexer(source).run();
}

}  // namespace stow::text::jinja
