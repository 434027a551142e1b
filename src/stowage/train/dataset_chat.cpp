#include "stowage/train/dataset_chat.h"

#include <optional>
#include <string>
#include <utility>

#include "stowage/io/json_fields.h"

namespace stow {
namespace {

// Spans are found by rendering the text once per turn.
constexpr size_t kMaxMessages = 4096;

bool is_empty(const Json* value) {
  return !value || value->is_null() || (value->as_string() && value->as_string()->empty()) ||
         (value->as_array() && value->as_array()->empty());
}

const std::string& role_of(const Json& message) {
  return *message.find("role")->as_string();
}

Result<void> check_messages(const Json::Array& messages) {
  if (messages.empty()) return fail("messages: expected at least one, got an empty array");
  if (messages.size() > kMaxMessages)
    return fail("messages: expected at most {}, got {}", kMaxMessages, messages.size());
  for (size_t i = 0; i < messages.size(); ++i) {
    const Json* role = messages[i].find("role");
    if (!role || !role->as_string())
      return fail("messages[{}]: expected an object with role and content, got {}", i,
                  shown(messages[i]));
    constexpr std::string_view kRoles[] = {"system", "developer", "user",   "assistant",
                                           "tool",   "function",  "ipython"};
    if (std::find(std::begin(kRoles), std::end(kRoles), *role->as_string()) == std::end(kRoles))
      return fail("messages[{}].role: expected system, developer, user, assistant or tool, got {}",
                  i, shown(*role));
    const Json* content = messages[i].find("content");
    if (content && !content->is_null() && !content->as_string() && !content->as_array())
      return fail("messages[{}].content: expected a string, got {}", i, shown(*content));
    if (*role->as_string() == "assistant" && is_empty(content) &&
        is_empty(messages[i].find("tool_calls")))
      return fail("messages[{}].content: expected what the assistant says, got nothing", i);
  }
  return {};
}

class Renderer {
 public:
  Renderer(const text::TokenizerFolder& text, const Json::Array& messages, const Json* tools)
      : text_(text), messages_(messages), variables_(text.special_tokens) {
    variables_.set("tools", tools ? *tools : Json());
    variables_.set("documents", nullptr);
    // The date that Llama 3's template uses if it is given none.
    variables_.set("date_string", "26 Jul 2024");
  }

  // Returns the text of the first n messages.
  Result<std::string> render(size_t n, bool generation_prompt) {
    variables_.set("messages", Json::Array(messages_.begin(),
                                           messages_.begin() + static_cast<std::ptrdiff_t>(n)));
    variables_.set("add_generation_prompt", generation_prompt);
    return text_.chat_template->render(variables_);
  }

 private:
  const text::TokenizerFolder& text_;
  const Json::Array& messages_;
  Json variables_;
};

// Returns the range of the turn `at` in the text of all messages, in bytes; see read_examples.
std::optional<std::pair<size_t, size_t>> find_turn(Renderer& renderer,
                                                   const text::TokenizerFolder& text,
                                                   const Json::Array& messages, size_t at,
                                                   const std::string& whole) {
  const Result<std::string> prompt = renderer.render(at, true);
  if (!prompt) return std::nullopt;
  size_t begin = common_prefix(*prompt, whole);
  if (begin < prompt->size()) {
    // A generation prompt may begin something that this turn lacks, such as its reasoning.
    const Result<std::string> before = renderer.render(at, false);
    if (!before || !whole.starts_with(*before) || begin < before->size()) return std::nullopt;
    // The range must not begin within a character.
    while (begin < whole.size() && (static_cast<unsigned char>(whole[begin]) & 0xc0) == 0x80)
      --begin;
  }
  if (at + 1 == messages.size()) return std::pair(begin, whole.size());
  const Result<std::string> through = renderer.render(at + 1, false);
  if (through && through->size() > begin && whole.starts_with(*through))
    return std::pair(begin, through->size());
  const Json* content = messages[at].find("content");
  if (is_empty(content) || !content->as_string()) return std::nullopt;
  const std::string& said = *content->as_string();
  if (whole.compare(begin, said.size(), said) != 0) return std::nullopt;
  size_t end = begin + said.size();
  if (const Json* eos = text.special_tokens.find("eos_token"); eos && eos->as_string())
    if (whole.compare(end, eos->as_string()->size(), *eos->as_string()) == 0)
      end += eos->as_string()->size();
  return std::pair(begin, end);
}

}  // namespace

Result<ChatTokens> chat_tokens(const Json& line, const text::TokenizerFolder& text,
                               bool mask_prompt) {
  const Json* member = line.find("messages");
  if (!member || !member->as_array())
    return fail("messages: expected an array, got {}", shown(member));
  const Json::Array& messages = *member->as_array();
  if (Result<void> good = check_messages(messages); !good) return good.failure();
  const Json* tools = line.find("tools");
  if (tools && !tools->is_null() && !tools->as_array())
    return fail("tools: expected an array, got {}", shown(*tools));
  if (!text.chat_template) return fail("messages: the model has no chat template");
  Renderer renderer(text, messages, tools);
  const Result<std::string> whole = renderer.render(messages.size(), false);
  if (!whole) return fail("messages: {}", whole.error());
  const auto encode = [&](std::string_view part) {
    return text.tokenizer.encode(part, {.add_special_tokens = false});
  };
  const Result<std::vector<int32_t>> ids = encode(*whole);
  if (!ids) return fail("messages: {}", ids.error());

  ChatTokens out;
  std::vector<bool> is_target(ids->size(), !mask_prompt);
  for (size_t at = 0; mask_prompt && at < messages.size(); ++at) {
    if (role_of(messages[at]) != "assistant") continue;
    const auto turn = find_turn(renderer, text, messages, at, *whole);
    if (!turn) {
      ++out.n_lost_turns;
      continue;
    }
    // A token across the beginning is the first target, because the turn's text needs it.
    const Result<std::vector<int32_t>> before =
        encode(std::string_view(*whole).substr(0, turn->first));
    if (!before) return fail("messages: {}", before.error());
    size_t end = ids->size();
    if (turn->second < whole->size()) {
      const Result<std::vector<int32_t>> through =
          encode(std::string_view(*whole).substr(0, turn->second));
      if (!through) return fail("messages: {}", through.error());
      end = common_prefix(*through, *ids);
    }
    for (size_t k = common_prefix(*before, *ids); k < end; ++k) is_target[k] = true;
  }
  out.values.resize(ids->size());
  for (size_t k = 0; k < ids->size(); ++k)
    out.values[k] = k > 0 && is_target[k] ? (*ids)[k] : ~(*ids)[k];
  return out;
}

}  // namespace stow
