#include "stowage/text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cctype>

#include "stowage/text/newer_unicode.h"

namespace stow::text {
namespace {

// White_Space as the inside of a class. PCRE2's own \s has U+180E, which left that property in
// Unicode 6.3.
constexpr std::string_view kSpaces =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr uint32_t kMatchLimit = 50'000'000;
constexpr size_t kJitStackBytes = 8 << 20;
constexpr size_t kMaxPatternBytes = 64 << 10;

// Rewrites a pattern of Oniguruma's grammar for PCRE2, and refuses what the two read differently.
class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  Result<std::string> run() {
    if (in_.size() > kMaxPatternBytes)
      return fail("expected a pattern of at most {} bytes, got {}", kMaxPatternBytes, in_.size());
    while (at_ < in_.size()) {
      const size_t begin = at_;
      if (Result<void> done = step(); !done) return done.failure();
      STOW_CHECK(at_ > begin);
    }
    return std::move(out_);
  }

 private:
  char peek(size_t ahead = 0) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }
  bool starts(std::string_view word) const { return in_.substr(at_).starts_with(word); }
  void copy(size_t n) {
    out_.append(in_.substr(at_, n));
    at_ += n;
  }
  Failure refuse(std::string_view what) const {
    return fail("the construct '{}' at byte {} is not supported", what, at_);
  }

  Result<void> step() {
    switch (peek()) {
      case '\\':
        return escape(false);
      case '[':
        return character_class();
      case '(':
        return group();
      case '^':
      case '$':
        return refuse(in_.substr(at_, 1));
      case '{':
        return braces();
      default:
        copy(1);
        return {};
    }
  }

  // Behind a quantifier in braces, Oniguruma reads a `+` as a second quantifier and PCRE2 as
  // possessive.
  Result<void> braces() {
    const size_t end = in_.find('}', at_);
    const std::string_view inside =
        in_.substr(at_ + 1, end == std::string_view::npos ? 0 : end - at_ - 1);
    if (inside.empty() || !std::isdigit(static_cast<unsigned char>(inside[0])) ||
        inside.find_first_not_of("0123456789,") != std::string_view::npos)
      return refuse("{");
    copy(end - at_ + 1);
    return peek() == '+' ? Result<void>(refuse("}+")) : Result<void>();
  }

  Result<void> group() {
    for (const std::string_view open : {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!"})
      if (starts(open)) return copy(open.size()), Result<void>();
    if (peek(1) == '?' || peek(1) == '*') return refuse(in_.substr(at_, 3));
    out_ += "(?:";  // No group is referred to.
    ++at_;
    return {};
  }

  Result<void> escape(bool in_class) {
    const char c = peek(1);
    switch (c) {
      case 's':
        out_.append(in_class ? "" : "[").append(kSpaces).append(in_class ? "" : "]");
        at_ += 2;
        return {};
      case 'S':
        if (in_class) return refuse("\\S in a class");
        out_.append("[^").append(kSpaces).append("]");
        at_ += 2;
        return {};
      case 'r':
      case 'n':
      case 't':
      case 'f':
        copy(2);
        return {};
      case 'v':
        out_ += "\\x{b}";
        at_ += 2;
        return {};
      case 'd':
      case 'D':
        return category("Nd", c == 'D', 2, in_class);
      case 'p':
      case 'P': {
        const size_t end = in_.find('}', at_);
        if (peek(2) != '{' || end == std::string_view::npos) return refuse(in_.substr(at_, 3));
        return category(in_.substr(at_ + 3, end - at_ - 3), c == 'P', end - at_ + 1, in_class);
      }
      default:
        break;
    }
    if (c == '\0' || std::isalnum(static_cast<unsigned char>(c)) ||
        static_cast<unsigned char>(c) >= 0x80)
      return refuse(in_.substr(at_, 2));
    copy(2);
    return {};
  }

  // A general category of Unicode 16, written in the next `n` bytes of the pattern.
  Result<void> category(std::string_view name, bool negated, size_t n, bool in_class) {
    const char* newer = newer_characters(name);
    if (!newer || (negated && in_class)) return refuse(in_.substr(at_, n));
    const std::string members = fmt::format("\\p{{{}}}{}", name, newer);
    out_ += in_class ? members : fmt::format("[{}{}]", negated ? "^" : "", members);
    at_ += n;
    return {};
  }

  Result<void> character_class() {
    copy(1);
    if (peek() == '^') copy(1);
    if (peek() == ']') return refuse("[]");
    while (at_ < in_.size() && peek() != ']') {
      if (peek() == '[') return refuse("[ in a class");
      if (starts("&&")) return refuse("&&");
      if (peek() != '\\') {
        copy(1);
      } else if (Result<void> done = escape(true); !done) {
        return done;
      }
    }
    if (at_ == in_.size()) return fail("a class has no end");
    copy(1);
    return {};
  }

  std::string_view in_;
  std::string out_;
  size_t at_ = 0;
};

// Matching needs scratch of its own in each thread.
struct Scratch {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 << 10, kJitStackBytes, nullptr);
  Scratch() {
    pcre2_set_match_limit(context, kMatchLimit);
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
};

}  // namespace

struct Regex::Code {
  pcre2_code* code = nullptr;
  ~Code() { pcre2_code_free(code); }
};

Result<Regex> Regex::compile(std::string_view pattern) {
  Result<std::string> translated = Translator(pattern).run();
  if (!translated) return translated.failure();
  int error = 0;
  size_t place = 0;
  auto code = std::make_shared<Code>();
  code->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated->data()), translated->size(),
                             PCRE2_UTF | PCRE2_UCP, &error, &place, nullptr);
  if (!code->code) {
    PCRE2_UCHAR message[256] = {};
    pcre2_get_error_message(error, message, sizeof message);
    return fail("{}", reinterpret_cast<const char*>(message));
  }
  pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE);  // Without it, matching is only slower.
  return Regex(std::move(code));
}

Regex Regex::literal(std::string_view literal) {
  std::string pattern;
  for (const char c : literal) {
    if (std::ispunct(static_cast<unsigned char>(c))) pattern += '\\';
    pattern += c;
  }
  Result<Regex> regex = compile(pattern);
  STOW_CHECK(regex.ok(), "{}", regex.error());
  return std::move(*regex);
}

Result<Regex::Match> Regex::find(std::string_view text, size_t from) const {
  thread_local Scratch scratch;
  const int found = pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                from, PCRE2_NO_UTF_CHECK, scratch.data, scratch.context);
  if (found == PCRE2_ERROR_NOMATCH) return Match{};
  if (found < 0) {
    PCRE2_UCHAR message[256] = {};
    pcre2_get_error_message(found, message, sizeof message);
    return fail("matching the pattern of words: {}", reinterpret_cast<const char*>(message));
  }
  const size_t* ends = pcre2_get_ovector_pointer(scratch.data);
  return Match{ends[0], ends[1], true};
}

}  // namespace stow::text
