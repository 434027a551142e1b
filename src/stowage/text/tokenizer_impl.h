// The parts of a tokenizer, as the reader of files puts them together.
// Not for users; see tokenizer.h.
#pragma once

#include <mutex>
#include <unordered_map>

#include "stowage/base/inside.h"
#include "stowage/text/bpe.h"
#include "stowage/text/split.h"
#include "stowage/text/tokenizer.h"

namespace stow::text {

/// Steps of a decoder, over the list of tokens. Source: Hugging Face's tokenizers, decoders/.
struct DecodeByteLevel {};  ///< Joins all tokens, from the byte-level alphabet to bytes to UTF-8.
struct DecodeByteFallback {};  ///< Runs of <0x00> to <0xFF> become the text of these bytes.
struct DecodeFuse {};          ///< Joins all tokens to one.
struct DecodeStrip {           ///< Takes up to so many of a character from each token's ends.
  std::string content;
  size_t start = 0, stop = 0;
};
struct DecodeMetaspace {  ///< The replacement becomes a space; that of the first token is dropped.
  std::string replacement;
  bool drops_first = true;
};
using DecoderStep = std::variant<DecodeByteLevel, DecodeByteFallback, DecodeFuse, DecodeStrip,
                                 DecodeMetaspace, Replace>;

/// The text of tokens after all steps, joined; without steps, joined by spaces.
std::string decode_tokens(const std::vector<DecoderStep>& steps, std::vector<std::string> tokens);

/// Ids of words that were encoded before. Bounded; used by one thread at a time.
struct WordCache {
  struct StringHash {
    using is_transparent = void;
    size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
  };
  struct Span {
    uint32_t begin, n;
  };
  static constexpr size_t kMaxWords = 1 << 17, kMaxWordBytes = 256;
  std::unordered_map<std::string, Span, StringHash, std::equal_to<>> spans;
  std::vector<int32_t> ids;
};

struct Tokenizer::Impl {
  std::vector<Normalizer> normalizers;
  std::vector<PreTokenizer> pre_tokenizers;
  Bpe bpe;
  std::vector<AddedToken> added;  // in the order of the file
  std::unordered_map<int32_t, size_t> added_by_id;
  std::unordered_map<std::string, int32_t> added_ids;
  AddedTokenMatcher raw_matcher, normalized_matcher;
  std::vector<int32_t> prefix, suffix;  // around a text, with special tokens
  std::vector<DecoderStep> decoder;
  int32_t end_id = 0;

  mutable std::mutex cache_mutex;
  mutable WordCache cache;

  Result<void> encode_text(std::string_view text, bool at_start, WordCache* cache,
                           std::vector<int32_t>& ids) const;
  void encode_word(std::string_view word, WordCache* cache, std::vector<int32_t>& ids) const;
};

}  // namespace stow::text
