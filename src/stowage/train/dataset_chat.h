// chat_tokens: a conversation as tokens, of which the assistants' turns are targets.
// Not the chat template; text/chat_template.h renders it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/io/json.h"
#include "stowage/text/tokenizer_folder.h"

namespace stow {

/// Returns the length of the longest common prefix of two sequences.
template <typename Sequence>
size_t common_prefix(const Sequence& a, const Sequence& b) {
  const auto n = static_cast<std::ptrdiff_t>(std::min(a.size(), b.size()));
  return static_cast<size_t>(std::mismatch(a.begin(), a.begin() + n, b.begin()).first - a.begin());
}

struct ChatTokens {
  std::vector<int32_t> values;  ///< The id of a target token; ~id of any other token.
  int64_t n_lost_turns = 0;     ///< Assistant turns not found in the text; see read_examples().
};

/// Returns the tokens of a line with `messages` and `tools`. `mask_prompt`: true: only the
/// assistants' turns are targets; false: all tokens but the first are.
/// Errors: "messages: reason" for wrong roles, empty answers, and errors of the template.
Result<ChatTokens> chat_tokens(const Json& line, const text::TokenizerFolder& text,
                               bool mask_prompt);

}  // namespace stow
