// A conversation as tokens, with what its assistants say as targets.
// Not the chat template itself; text/chat_template.h renders it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/io/json.h"
#include "stowage/text/tokenizer_folder.h"

namespace stow {

/// How many elements two sequences have in common from the front on.
template <typename Sequence>
size_t common_prefix(const Sequence& a, const Sequence& b) {
  const auto n = static_cast<std::ptrdiff_t>(std::min(a.size(), b.size()));
  return static_cast<size_t>(std::mismatch(a.begin(), a.begin() + n, b.begin()).first - a.begin());
}

struct ChatTokens {
  std::vector<int32_t> values;  ///< The id of a target, ~id of another token.
  int64_t n_lost_turns = 0;     ///< Assistant turns not found in the text; see read_examples.
};

/// The tokens of `messages` and `tools`. `mask_prompt` false: all but the first are targets.
/// Errors: "messages: reason" for wrong roles, empty answers, and what the template raises.
Result<ChatTokens> chat_tokens(const Json& line, const text::TokenizerFolder& text,
                               bool mask_prompt);

}  // namespace stow
