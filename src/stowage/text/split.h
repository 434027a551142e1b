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

/// Puts `text` before a text that is not empty.
struct Prepend {
  std::string text;
};
/// Replaces each match.
struct Replace {
  Regex pattern;
  std::string content;
};
using Normalizer = std::variant<NormalForm, Prepend, Replace>;

/// The text after all steps in turn.
/// Errors: a pattern beyond its limits.
Result<std::string> normalize_text(const std::vector<Normalizer>& steps, std::string text);

enum class SplitBehavior : uint8_t {
  kIsolated,
  kRemoved,
  kMergedWithPrevious,
  kMergedWithNext,
  kContiguous
};

/// Cuts at the matches of a pattern; `invert` exchanges matches and what is between them.
struct SplitByPattern {
  Regex pattern;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;
};
/// Cuts out digits, each alone or in runs.
struct SplitDigits {
  bool individual = false;
};
/// Words as bytes, by GPT-2's pattern where `use_regex` holds.
struct ByteLevel {
  bool add_prefix_space = true;
  bool use_regex = true;
};
/// Replaces spaces by a character and puts one before the text.
struct Metaspace {
  enum class Prepend : uint8_t { kAlways, kFirst, kNever };
  std::string replacement = "\xE2\x96\x81";
  Prepend prepend = Prepend::kAlways;
  bool split = true;
};
using PreTokenizer = std::variant<SplitByPattern, SplitDigits, ByteLevel, Metaspace>;

/// GPT-2's pattern of words.
const Regex& gpt2_pattern();

/// A word, and whether it begins where the whole text does.
struct Word {
  std::string_view text;
  bool at_start = false;
};

/// The words of a text after all steps in turn. The words refer to `text` or to `storage`.
/// Errors: a pattern beyond its limits.
Result<std::vector<Word>> split_words(const std::vector<PreTokenizer>& steps, Word text,
                                      std::deque<std::string>& storage);

}  // namespace stow::text
