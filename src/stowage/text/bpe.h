// Bpe: byte-pair encoding of one word, by a vocabulary and ranked merges.
// Not splitting into words, normalization or added tokens; see tokenizer.h.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"

namespace stow::text {

struct BpeModel {
  std::vector<std::pair<std::string, int32_t>> vocab;
  /// In the order of their ranks, the lowest first.
  std::vector<std::pair<std::string, std::string>> merges;
  std::string unk_token;       ///< Empty: characters outside the vocabulary are dropped.
  bool fuse_unk = false;       ///< Adjacent unknown characters are one token.
  bool byte_fallback = false;  ///< Characters outside the vocabulary are tokens <0x00> to <0xFF>.
  bool ignore_merges = false;  ///< A word in the vocabulary is one token, regardless of merges.
  /// The strings above are in the byte-level alphabet and words are bytes.
  bool byte_level = false;
};

/// Repeatedly merges the adjacent pair of the lowest rank, the leftmost one of equal rank, until no
/// pair has a merge.
/// Source: Sennrich et al. 2016; the details are those of Hugging Face's tokenizers, models/bpe.
class Bpe {
 public:
  /// Errors: an id that is out of range or used twice; a merge whose parts or result are not in the
  /// vocabulary; an unk_token that is not in the vocabulary.
  static Result<Bpe> create(BpeModel model);

  /// Appends the ids of a word to `ids`. A word is normalized text without added tokens; raw bytes
  /// for a byte-level model.
  void encode(std::string_view word, std::vector<int32_t>& ids) const;

  /// Returns the id of a token as it is spelled in the file, or -1.
  int32_t id_of(std::string_view token) const;
  /// Returns the token of an id as it is spelled in the file; null if there is none.
  const std::string* token_of(int32_t id) const;
  /// The largest id plus one.
  int32_t end_id() const { return static_cast<int32_t>(tokens_.size()); }

 private:
  struct Merge {
    uint32_t rank;
    int32_t id;
  };
  struct StringHash {
    using is_transparent = void;
    size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
  };
  using Ids = std::unordered_map<std::string, int32_t, StringHash, std::equal_to<>>;

  const Merge* find_merge(int32_t left, int32_t right) const;
  void insert_merge(int32_t left, int32_t right, Merge merge);
  // Sets `symbols` to the ids of the word's single characters or bytes, before any merge.
  void first_symbols(std::string_view word, std::vector<int32_t>& symbols) const;
  // Both merge the symbols in place: in quadratic time, and with a priority queue.
  void merge_short(std::vector<int32_t>& symbols) const;
  void merge_long(std::vector<int32_t>& symbols) const;

  std::vector<std::string> tokens_;  // by id; an unused id has an empty token that is not in ids_
  Ids ids_;                          // by token as spelled in the file
  Ids words_;                        // by the text that a token encodes
  // Hash table with open addressing. A key is a pair of ids; (-1, -1) marks a free place.
  std::vector<uint64_t> merge_keys_;
  std::vector<Merge> merges_;
  // By byte, the id of its token: the byte itself if byte-level, else <0x00> to <0xFF>; -1: none.
  std::array<int32_t, 256> byte_ids_{};
  std::array<int32_t, 128> ascii_ids_{};  // ids of single characters; -1: none
  int32_t unk_id_ = -1;
  bool fuse_unk_ = false, byte_fallback_ = false, ignore_merges_ = false, byte_level_ = false;
};

/// Decodes a token of the byte-level alphabet into `bytes`. Returns false if a character is not in
/// that alphabet. Source: GPT-2, encoder.py, bytes_to_unicode.
bool byte_level_bytes(std::string_view token, std::string& bytes);

}  // namespace stow::text
