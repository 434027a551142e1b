// Tokenizer: text to ids and back, as a Hugging Face tokenizer.json says.
// Not chat templates (chat_template.h), and not models other than byte-pair encoding.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/io/json.h"
#include "stowage/text/added_tokens.h"

namespace stow::text {

struct EncodeOptions {
  /// Adds what the post-processor adds, as a token that begins a text. A rendered chat template has
  /// its own.
  bool add_special_tokens = true;
};
struct DecodeOptions {
  /// Leaves tokens out that the file calls special.
  bool skip_special_tokens = false;
};

/// A tokenizer. Cheap to copy; safe for use by several threads.
class Tokenizer {
 public:
  struct Impl;

  /// Reads a tokenizer.json: BPE models with byte-level or SentencePiece-like words. Padding and
  /// truncation in the file are ignored. Errors: "PATH: KEY: reason" for a file that is missing,
  /// damaged or needs what is not supported, by name.
  static Result<Tokenizer> load(const std::string& path);
  /// The same from the text of such a file; `name` stands for the path in errors.
  static Result<Tokenizer> parse(std::string_view json, const std::string& name);
  /// The same from the parsed JSON. Errors: "KEY: reason".
  static Result<Tokenizer> from_json(const Json& json);

  /// The ids of a text.
  /// Errors: the text is not UTF-8; a pattern of words takes too long on it.
  Result<std::vector<int32_t>> encode(std::string_view text,
                                      const EncodeOptions& options = {}) const;

  /// The text of ids; ids that are not there give nothing. Bytes that are no UTF-8 give U+FFFD.
  std::string decode(std::span<const int32_t> ids, const DecodeOptions& options = {}) const;

  /// The id of a token as the file writes it, added tokens included, or -1.
  int32_t id_of(std::string_view token) const;
  /// The token of an id as the file writes it; empty for an id that is not there.
  std::string token_of(int32_t id) const;
  bool is_special(int32_t id) const;
  /// One more than the largest id.
  int32_t end_id() const;

 private:
  explicit Tokenizer(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

/// Decodes ids as they come, without splitting a character: what is returned are whole characters,
/// and all of them together are the text that decode gives.
class StreamDecoder {
 public:
  explicit StreamDecoder(Tokenizer tokenizer, const DecodeOptions& options = {})
      : tokenizer_(std::move(tokenizer)), options_(options) {}

  /// The text that one more id makes certain; empty while a character is unfinished.
  std::string push(int32_t id);
  /// The rest: U+FFFD for a character that was never finished.
  std::string finish();

 private:
  std::string emit(bool all);

  Tokenizer tokenizer_;
  DecodeOptions options_;
  std::vector<int32_t> ids_;  // from the last place on at which decoding may begin anew
  size_t n_context_ = 0;      // number of ids_ whose text has been returned
  size_t emitted_bytes_ = 0;  // bytes of the text of ids_
};

}  // namespace stow::text
