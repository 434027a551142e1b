// Tokenizer::Impl: the parts of a tokenizer that the readers of files assemble.
// Not for users; see tokenizer.h.
#pragma once

#include <mutex>
#include <unordered_map>

#include "stowage/base/inside.h"
#include "stowage/text/bpe.h"
#include "stowage/text/split.h"
#include "stowage/text/tokenizer.h"

namespace stow::text {

/// Steps of a decoder, each of which maps a list of tokens. Source: Hugging Face's tokenizers,
/// decoders/.
struct DecodeByteLevel {};  ///< Joins all tokens and decodes the byte-level alphabet to UTF-8.
struct DecodeByteFallback {};  ///< Decodes runs of <0x00> to <0xFF> to UTF-8.
struct DecodeFuse {};          ///< Joins all tokens into one.
/// Removes up to `start` times `content` from the beginning, and up to `stop` times from the end,
/// of each token.
struct DecodeStrip {
  std::string content;
  size_t start = 0, stop = 0;
};
/// Replaces `replacement` by a space; removes it in the first token if
/// `drops_first`.
struct DecodeMetaspace {
  std::string replacement;
  bool drops_first = true;
};
using DecoderStep = std::variant<DecodeByteLevel, DecodeByteFallback, DecodeFuse, DecodeStrip,
                                 DecodeMetaspace, Replace>;

/// Applies all steps and returns the joined tokens; without steps, the tokens joined by spaces.
std::string decode_tokens(const std::vector<DecoderStep>& steps, std::vector<std::string> tokens);

/// A bounded cache of the ids of words. One thread at a time uses it.
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
  std::vector<int32_t> prefix, suffix;  // added around a text if add_special_tokens
  std::vector<DecoderStep> decoder;
  int32_t end_id = 0;

  mutable std::mutex cache_mutex;
  mutable WordCache cache;

  Result<void> encode_text(std::string_view text, bool at_start, WordCache* cache,
                           std::vector<int32_t>& ids) const;
  void encode_word(std::string_view word, WordCache* cache, std::vector<int32_t>& ids) const;
};

}  // namespace stow::text
