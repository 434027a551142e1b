// Bpe: byte-pair encoding of one word, by a vocabulary and ranked merges.
// Not splitting into words, nor what stands around the model; see tokenizer.h.
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
  bool ignore_merges = false;  ///< A word of the vocabulary is one token, whatever the merges say.
  /// The strings above are in the byte-level alphabet and words are bytes.
  bool byte_level = false;
};

/// Merges the adjacent pair of the lowest rank, the leftmost of equals, until none is left.
/// Source: Sennrich et al. 2016; the details are those of Hugging Face's tokenizers, models/bpe.
class Bpe {
 public:
  /// Errors: an id twice or out of range; a merge whose parts or result are not in the vocabulary;
  /// an unknown token that is not.
  static Result<Bpe> create(BpeModel model);

  /// Appends the ids of a word to `ids`. A word is text without added tokens, in normal form; bytes
  /// where the model is byte-level.
  void encode(std::string_view word, std::vector<int32_t>& ids) const;

  /// The id of a token as the file writes it, or -1.
  int32_t id_of(std::string_view token) const;
  /// The token of an id as the file writes it; null for an id that is not there.
  const std::string* token_of(int32_t id) const;
  /// One more than the largest id.
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
  void first_symbols(std::string_view word, std::vector<int32_t>& symbols) const;
  void merge_short(std::vector<int32_t>& symbols) const;
  void merge_long(std::vector<int32_t>& symbols) const;

  std::vector<std::string> tokens_;  // by id; empty and not in ids_: not there
  Ids ids_;                          // by the token as the file writes it
  Ids words_;                        // by the text that the token stands for
  // Open addressing: keys are pairs of ids, of which -1, -1 is none.
  std::vector<uint64_t> merge_keys_;
  std::vector<Merge> merges_;
  std::array<int32_t, 256> byte_ids_{};   // byte-level: a byte; else: <0x00> to <0xFF>; -1: none
  std::array<int32_t, 128> ascii_ids_{};  // ids of single characters; -1: none
  int32_t unk_id_ = -1;
  bool fuse_unk_ = false, byte_fallback_ = false, ignore_merges_ = false, byte_level_ = false;
};

/// Sets `bytes` to the bytes for which a token of the byte-level alphabet stands. False if a
/// character is not in that alphabet. Source: GPT-2, encoder.py, bytes_to_unicode.
bool byte_level_bytes(std::string_view token, std::string& bytes);

}  // namespace stow::text
