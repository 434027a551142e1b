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
  std::string normal_form;   ///< The normalized content, if `normalized`.
  bool single_word = false;  ///< The token matches only if no word character is next to it.
  bool lstrip = false;       ///< The match includes the white space before the token.
  bool rstrip = false;       ///< The match includes the white space after the token.
  bool normalized = false;   ///< `normal_form` is matched in the normalized text.
  bool special = false;      ///< Decoding can leave the token out.
};

/// Finds a set of added tokens in a text. A match further left wins; at one place the longest wins.
/// Source: Hugging Face's tokenizers, added_vocabulary.rs, find_matches.
class AddedTokenMatcher {
 public:
  struct Pattern {
    /// The bytes to find: the token's normal_form if it is `normalized`, else its content. A
    /// pattern with an empty text is ignored.
    std::string text;
    AddedToken token;
  };
  AddedTokenMatcher() = default;
  explicit AddedTokenMatcher(std::vector<Pattern> patterns);

  struct Piece {
    size_t begin, end;
    int32_t id;  ///< -1: text between tokens
  };
  /// Splits the text into added tokens and the pieces between them; pieces are ranges of bytes.
  std::vector<Piece> split(std::string_view text) const;

 private:
  const Pattern* longest_at(std::string_view text, size_t at) const;  // null if none matches

  std::vector<Pattern> patterns_;  // sorted by text
  // Patterns that begin with byte b are patterns_[begin_of_[b]] to patterns_[begin_of_[b + 1] - 1].
  std::vector<uint32_t> begin_of_ =
      {};
};

}  // namespace stow::text
