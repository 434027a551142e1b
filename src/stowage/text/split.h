// Normalizers and pre-tokenizers: the steps between a text and the words that the model encodes.
// Not the model, nor added tokens.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/text/regex.h"
#include "stowage/text/unicode.h"

namespace stow::text {

/// Prepends `text`, unless the input is empty.
struct Prepend {
  std::string text;
};
/// Replaces each match of `pattern` by `content`.
struct Replace {
  Regex pattern;
  std::string content;
};
using Normalizer = std::variant<NormalForm, Prepend, Replace>;

/// Returns the text after all steps in turn.
/// Errors: those of Regex::find().
Result<std::string> normalize_text(const std::vector<Normalizer>& steps, std::string text);

/// The treatment of matches. Source: Hugging Face's tokenizers, SplitDelimiterBehavior.
enum class SplitBehavior : uint8_t {
  kIsolated,            ///< Each match is a word.
  kRemoved,             ///< Matches are dropped.
  kMergedWithPrevious,  ///< A match is the end of the word before it.
  kMergedWithNext,      ///< A match is the beginning of the word after it.
  kContiguous           ///< Adjacent matches are one word.
};

/// Splits at the matches of a pattern; with `invert`, at the pieces between matches.
struct SplitByPattern {
  Regex pattern;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;
};
/// Splits off digits: each digit (`individual`) or each run of digits is a word.
struct SplitDigits {
  bool individual = false;
};
/// Words are bytes; with `use_regex`, the text is split by gpt2_pattern().
struct ByteLevel {
  bool add_prefix_space = true;
  bool use_regex = true;
};
/// Replaces spaces by `replacement` and may prepend one to the text.
struct Metaspace {
  /// kFirst: prepends only at the beginning of the whole text, not after an added token.
  enum class Prepend : uint8_t { kAlways, kFirst, kNever };
  std::string replacement = "\xE2\x96\x81";
  Prepend prepend = Prepend::kAlways;
  bool split = true;  ///< Splits before each replacement.
};
using PreTokenizer = std::variant<SplitByPattern, SplitDigits, ByteLevel, Metaspace>;

/// Returns GPT-2's pattern of words.
const Regex& gpt2_pattern();

/// A word of a text.
struct Word {
  std::string_view text;
  bool at_start = false;  ///< True if the word begins at the beginning of the whole text.
};

/// Returns the words of a text after all steps in turn. The words refer to `text` or to `storage`.
/// Errors: those of Regex::find().
Result<std::vector<Word>> split_words(const std::vector<PreTokenizer>& steps, Word text,
                                      std::deque<std::string>& storage);

}  // namespace stow::text
