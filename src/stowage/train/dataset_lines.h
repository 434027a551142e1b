// Examples: the lines of a JSONL file as tokens, some of which are targets of the loss.
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

/// The token ids of all examples: 4 bytes for each token and 8 for each example.
class Examples {
 public:
  int64_t size() const { return static_cast<int64_t>(begin_.size()) - 1; }
  /// The number of tokens of example i.
  int64_t length(int64_t i) const {
    return begin_[static_cast<size_t>(i) + 1] - begin_[static_cast<size_t>(i)];
  }
  /// The id of token k of example i.
  int32_t token(int64_t i, int64_t k) const {
    const int32_t value = at(i, k);
    return value < 0 ? ~value : value;
  }
  /// True if token k of example i is a target. The first token never is, because nothing predicts
  /// it.
  bool is_target(int64_t i, int64_t k) const { return at(i, k) >= 0; }
  int64_t n_tokens() const { return begin_.back(); }

  /// Appends an example: the id of each target token, and ~id of each other token.
  void append(const std::vector<int32_t>& values);
  /// Adds ids, targets and lengths to a digest.
  void digest_into(Digest& digest) const;

  /// The number of assistant turns whose place in the rendered text was not found. They are no
  /// targets.
  int64_t n_lost_turns = 0;

 private:
  int32_t at(int64_t i, int64_t k) const {
    return values_[static_cast<size_t>(begin_[static_cast<size_t>(i)] + k)];
  }

  std::vector<int32_t> values_;
  std::vector<int64_t> begin_ = {0};
};

/// Options for tokenizing lines.
struct LineOptions {
  const text::TokenizerFolder* text = nullptr;  ///< Null: only lines of tokens can be read.
  int64_t vocab = 0;                            ///< Ids must be from 0 to vocab - 1.
  /// True: only completions and assistants' turns are targets. False: every token of an example but
  /// the first is a target.
  bool mask_prompt = true;
};

/// Reads a JSONL file, whose lines must have one format. Skips empty lines and ignores unknown
/// keys.
///   {"text"}                  Tokens: the encoded text, then EOS. Targets: all but the first.
///   {"prompt", "completion"}  Tokens: the concatenated texts, encoded, then EOS. Targets: all
///                             after the common prefix with the encoded prompt.
///   {"messages", "tools"}     Tokens: the rendered chat template, encoded, nothing added. Targets:
///                             the assistants' turns.
///   {"tokens", "mask"}        Tokens: the ids. Targets: those with mask 1; without a mask all but
///                             the first.
///
/// EOS is the tokenizer's eos_token, unless there is none or the text ends with it; without EOS a
/// model never learns to stop. A chat template ends its turns itself and adds its own BOS.
///
/// An assistant's turn begins at the end of the rendered earlier messages with a generation prompt.
/// It ends at the end of the rendered messages up to it. Some templates render earlier turns
/// differently from the last one (without reasoning); the end is then found by the message's
/// content and an EOS after it. A turn that is not found is no target and is counted. Templates get
/// a fixed `date_string`: tokens do not depend on the date.
///
/// Errors: "FILE: line N: reason" for bad JSON, several formats, wrong roles, an empty completion,
/// ids outside of the vocabulary, a mask of another length, and errors of a template.
Result<Examples> read_examples(const std::string& path, const LineOptions& options);

}  // namespace stow
