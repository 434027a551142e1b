// Examples: the lines of a JSONL file as tokens, of which some are targets of the loss.
// Not batches; dataset.h makes them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/io/digest.h"
#include "stowage/text/tokenizer_folder.h"

namespace stow {

/// Token ids of examples, one after another: 4 bytes a token and 8 an example.
class Examples {
 public:
  int64_t size() const { return static_cast<int64_t>(begin_.size()) - 1; }
  /// Tokens of example i.
  int64_t length(int64_t i) const {
    return begin_[static_cast<size_t>(i) + 1] - begin_[static_cast<size_t>(i)];
  }
  int32_t token(int64_t i, int64_t k) const {
    const int32_t value = at(i, k);
    return value < 0 ? ~value : value;
  }
  /// True if the loss counts token k of example i. The first token never is: nothing predicts it.
  bool is_target(int64_t i, int64_t k) const { return at(i, k) >= 0; }
  int64_t n_tokens() const { return begin_.back(); }

  /// Appends an example: a token that is a target as its id, another as ~id.
  void append(const std::vector<int32_t>& values);
  /// Adds ids, targets and lengths to a digest.
  void digest_into(Digest& digest) const;

  /// Assistant turns whose place in the rendered text was not found: no targets.
  int64_t n_lost_turns = 0;

 private:
  int32_t at(int64_t i, int64_t k) const {
    return values_[static_cast<size_t>(begin_[static_cast<size_t>(i)] + k)];
  }

  std::vector<int32_t> values_;
  std::vector<int64_t> begin_ = {0};
};

/// How lines become tokens.
struct LineOptions {
  const text::TokenizerFolder* text = nullptr;  ///< null: only lines of tokens can be read.
  int64_t vocab = 0;                            ///< Ids are from 0 to vocab - 1.
  /// Prompts are no targets: of `prompt` and `completion` the completion is, of `messages` what
  /// assistants say. Otherwise every token but an example's first is one.
  bool mask_prompt = true;
};

/// Reads a JSONL file, all lines in one format; empty lines are skipped, unknown keys ignored.
///
/// | line | tokens | targets |
/// |---|---|---|
/// | `{"text"}` | as the tokenizer encodes a text, then EOS | all but the first |
/// | `{"prompt", "completion"}` | both texts as one, then EOS | from the first token on that the
/// prompt alone does not begin with | | `{"messages", "tools"}` | the chat template's text, nothing
/// added | the assistants' turns | | `{"tokens", "mask"}` | as they stand | where the mask is 1;
/// without a mask all but the first |
///
/// EOS is the tokenizer's eos_token, where there is one and the text does not end with it: without
/// it a model never learns to stop. A template ends its turns itself and brings its own BOS.
///
/// A turn of an assistant begins after the text that the template renders of the messages before
/// with a generation prompt and ends where the rendered messages up to it end. A template that
/// writes earlier turns otherwise than the last (without their reasoning) has that end found by the
/// message's content and an EOS after it; a turn that is not found is no target and is counted.
/// Templates get a fixed `date_string`, so that the tokens do not depend on the day.
///
/// Errors: "FILE: line N: reason" for bad JSON, several formats, wrong roles, an empty completion,
/// ids outside the vocabulary, a mask of another length, what a template raises.
Result<Examples> read_examples(const std::string& path, const LineOptions& options);

}  // namespace stow
