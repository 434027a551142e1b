// AddedTokens: tokens that are found in the text before it is split into words.
// Not the model's vocabulary.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stow::text {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  std::string normal_form;  ///< The content normalized, if `normalized` holds.
  bool single_word = false;  ///< Matches only where no word character stands on either side.
  bool lstrip = false;       ///< Takes the white space before it.
  bool rstrip = false;       ///< Takes the white space behind it.
  bool normalized = false;   ///< Is looked for in the normalized text, in its own normal form.
  bool special = false;      ///< Is left out of decoded text on request.
};

/// Finds a set of added tokens in a text: the leftmost first, of those the longest.
/// Source: Hugging Face's tokenizers, added_vocabulary.rs, find_matches.
class AddedTokenMatcher {
 public:
  struct Pattern {
    std::string text;
    AddedToken token;
  };
  AddedTokenMatcher() = default;
  explicit AddedTokenMatcher(std::vector<Pattern> patterns);

  struct Piece {
    size_t begin, end;
    int32_t id;  ///< -1: text between tokens
  };
  /// The text cut into tokens and what stands between them.
  std::vector<Piece> split(std::string_view text) const;

 private:
  const Pattern* longest_at(std::string_view text, size_t at) const;

  std::vector<Pattern> patterns_;  // sorted by text
  std::vector<uint32_t> begin_of_ =
      {};  // by the first byte: the first of its patterns; 257 entries
};

}  // namespace stow::text
