// Tokenizer: text to token ids and back, by a Hugging Face tokenizer.json.
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
  /// True: adds the tokens of the post-processor, such as a beginning-of-text token. A rendered
  /// chat template already contains its special tokens.
  bool add_special_tokens = true;
};
struct DecodeOptions {
  /// True: leaves out tokens that the file marks as special.
  bool skip_special_tokens = false;
};

/// A tokenizer. Cheap to copy; thread-safe.
class Tokenizer {
 public:
  struct Impl;

  /// Reads a tokenizer.json: BPE models with byte-level or SentencePiece-like words. Padding and
  /// truncation in the file are ignored.
  /// Errors: "PATH: KEY: reason" for a missing or damaged file, or an unsupported feature (by
  /// name).
  static Result<Tokenizer> load(const std::string& path);
  /// Like load(), from the text of a tokenizer.json; `name` replaces the path in errors.
  static Result<Tokenizer> parse(std::string_view json, const std::string& name);
  /// Like load(), from parsed JSON. Errors: "KEY: reason".
  static Result<Tokenizer> from_json(const Json& json);

  /// Returns the ids of a text.
  /// Errors: the text is not UTF-8; those of Regex::find().
  Result<std::vector<int32_t>> encode(std::string_view text,
                                      const EncodeOptions& options = {}) const;

  /// Returns the text of ids. Unknown ids are skipped; bytes that are not UTF-8 become U+FFFD.
  std::string decode(std::span<const int32_t> ids, const DecodeOptions& options = {}) const;

  /// Returns the id of a token as it is spelled in the file, or -1. Includes added tokens.
  int32_t id_of(std::string_view token) const;
  /// Returns the token of an id as it is spelled in the file; "" for an unknown id.
  std::string token_of(int32_t id) const;
  bool is_special(int32_t id) const;
  /// The largest id plus one.
  int32_t end_id() const;

 private:
  explicit Tokenizer(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

/// Decodes ids one by one and returns whole characters only. The concatenated results are the text
/// that decode() returns.
class StreamDecoder {
 public:
  explicit StreamDecoder(Tokenizer tokenizer, const DecodeOptions& options = {})
      : tokenizer_(std::move(tokenizer)), options_(options) {}

  /// Adds an id and returns the text that is now complete; "" while a character is incomplete.
  std::string push(int32_t id);
  /// Returns the remaining text: U+FFFD for an incomplete character.
  std::string finish();

 private:
  std::string emit(bool all);  // new text; `all`: also an incomplete character

  Tokenizer tokenizer_;
  DecodeOptions options_;
  std::vector<int32_t> ids_;  // ids from the last place at which decoding may restart
  size_t n_context_ = 0;      // number of ids_ whose text has been returned
  size_t emitted_bytes_ = 0;  // bytes of the text of ids_
};

}  // namespace stow::text
