// Regex: the regular expressions of tokenizer files, matched by PCRE2 with Oniguruma's meaning.
// Not every regular expression: compile() refuses constructs whose meaning differs between the two.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"

namespace stow::text {

/// A compiled expression. Thread-safe.
/// Grammar: literals, `.`, classes without nested classes, \r \n \t \f \v \s \S \d \D, \p{…} \P{…}
///          of general categories, escaped punctuation, `|`, groups ( ), (?: ), (?i: ),
///          lookaround, quantifiers * + ? {m,n} with an optional ? or (not after braces) +.
/// Unicode: categories are those of Unicode 16, as in Oniguruma; \s is White_Space.
class Regex {
 public:
  /// Errors: a construct outside the grammar, or PCRE2's message, with the position in the pattern.
  static Result<Regex> compile(std::string_view pattern);
  /// Returns an expression that matches exactly `literal`.
  static Regex literal(std::string_view literal);

  struct Match {
    size_t begin = 0, end = 0;
    bool found = false;
  };
  /// Returns the first match at or after the byte `from` of `text`, which must be valid UTF-8.
  /// Errors: the match takes more steps than the limit (a hostile text or pattern).
  Result<Match> find(std::string_view text, size_t from) const;

 private:
  struct Code;
  explicit Regex(std::shared_ptr<const Code> code) : code_(std::move(code)) {}

  std::shared_ptr<const Code> code_;
};

}  // namespace stow::text
