#include "stowage/text/tokenizer.h"

#include <algorithm>

#include "stowage/io/json.h"
#include "stowage/text/tokenizer_impl.h"

namespace stow::text {

void Tokenizer::Impl::encode_word(std::string_view word, WordCache* known,
                                  std::vector<int32_t>& ids) const {
  if (!known || word.size() > WordCache::kMaxWordBytes) return bpe.encode(word, ids);
  if (const auto found = known->spans.find(word); found != known->spans.end()) {
    const auto begin = known->ids.begin() + found->second.begin;
    ids.insert(ids.end(), begin, begin + found->second.n);
    return;
  }
  const size_t before = ids.size();
  bpe.encode(word, ids);
  if (known->spans.size() == WordCache::kMaxWords) return;
  known->spans.emplace(word, WordCache::Span{static_cast<uint32_t>(known->ids.size()),
                                             static_cast<uint32_t>(ids.size() - before)});
  known->ids.insert(known->ids.end(), ids.begin() + static_cast<std::ptrdiff_t>(before), ids.end());
}

// A text without added tokens of the raw kind.
Result<void> Tokenizer::Impl::encode_text(std::string_view raw, bool at_start, WordCache* known,
                                          std::vector<int32_t>& ids) const {
  std::string normal;
  std::string_view text = raw;
  if (!normalizers.empty()) {
    Result<std::string> done = normalize_text(normalizers, std::string(raw));
    if (!done) return done.failure();
    normal = std::move(*done);
    text = normal;
  }
  std::deque<std::string> storage;
  for (const AddedTokenMatcher::Piece& piece : normalized_matcher.split(text)) {
    if (piece.id >= 0) {
      ids.push_back(piece.id);
      continue;
    }
    const Word whole = {text.substr(piece.begin, piece.end - piece.begin),
                        at_start && piece.begin == 0};
    const Result<std::vector<Word>> words = split_words(pre_tokenizers, whole, storage);
    if (!words) return words.failure();
    for (const Word& word : *words) encode_word(word.text, known, ids);
    storage.clear();
  }
  return {};
}

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text,
                                               const EncodeOptions& options) const {
  if (!is_utf8(text)) return fail("expected UTF-8, got bytes that are not");
  const std::unique_lock lock(impl_->cache_mutex, std::try_to_lock);
  WordCache* known = lock.owns_lock() ? &impl_->cache : nullptr;
  std::vector<int32_t> ids;
  if (options.add_special_tokens) ids = impl_->prefix;
  for (const AddedTokenMatcher::Piece& piece : impl_->raw_matcher.split(text)) {
    if (piece.id >= 0) {
      ids.push_back(piece.id);
      continue;
    }
    const Result<void> done = impl_->encode_text(text.substr(piece.begin, piece.end - piece.begin),
                                                 piece.begin == 0, known, ids);
    if (!done) return done.failure();
  }
  if (options.add_special_tokens) ids.insert(ids.end(), impl_->suffix.begin(), impl_->suffix.end());
  return ids;
}

namespace {

// The text that the decoder gets: a normalized token is undone as the model's tokens are.
const std::string& text_of(const AddedToken& token) {
  return token.normalized ? token.normal_form : token.content;
}

}  // namespace

std::string Tokenizer::decode(std::span<const int32_t> ids, const DecodeOptions& options) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const int32_t id : ids) {
    if (options.skip_special_tokens && is_special(id)) continue;
    if (const auto added = impl_->added_by_id.find(id); added != impl_->added_by_id.end())
      tokens.push_back(text_of(impl_->added[added->second]));
    else if (const std::string* token = impl_->bpe.token_of(id))
      tokens.push_back(*token);
  }
  return decode_tokens(impl_->decoder, std::move(tokens));
}

int32_t Tokenizer::id_of(std::string_view token) const {
  const auto added = impl_->added_ids.find(std::string(token));
  return added != impl_->added_ids.end() ? added->second : impl_->bpe.id_of(token);
}

std::string Tokenizer::token_of(int32_t id) const {
  if (const auto added = impl_->added_by_id.find(id); added != impl_->added_by_id.end())
    return impl_->added[added->second].content;
  const std::string* token = impl_->bpe.token_of(id);
  return token ? *token : std::string();
}

bool Tokenizer::is_special(int32_t id) const {
  const auto added = impl_->added_by_id.find(id);
  return added != impl_->added_by_id.end() && impl_->added[added->second].special;
}

int32_t Tokenizer::end_id() const {
  return impl_->end_id;
}

std::string StreamDecoder::emit(bool all) {
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  const std::string text = tokenizer_.decode(ids_, options_);
  // An unfinished character shows as U+FFFD at the end; one that stays so comes out with what
  // follows it.
  if (!all && text.ends_with(kReplacement)) return {};
  if (text.size() <= emitted_bytes_) return {};
  std::string fresh = text.substr(emitted_bytes_);
  // The ids whose text was new are the context of the next.
  ids_.erase(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(n_context_));
  n_context_ = ids_.size();
  emitted_bytes_ = tokenizer_.decode(ids_, options_).size();
  return fresh;
}

std::string StreamDecoder::push(int32_t id) {
  ids_.push_back(id);
  return emit(false);
}

std::string StreamDecoder::finish() {
  return emit(true);
}

}  // namespace stow::text
