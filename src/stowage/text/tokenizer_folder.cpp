#include "stowage/text/tokenizer_folder.h"

#include "stowage/base/text_file.h"
#include "stowage/io/files.h"
#include "stowage/io/gguf.h"
#include "stowage/io/json_fields.h"
#include "stowage/text/tokenizer_gguf.h"

namespace stow::text {
namespace {

constexpr int64_t kMaxConfigBytes = 64 << 20;

// The content of a special token, written as a text or as an added token.
const std::string* token_content(const Json& value) {
  if (value.as_string()) return value.as_string();
  const Json* content = value.find("content");
  return content ? content->as_string() : nullptr;
}

// The template of tokenizer_config.json: a text, or a list of named ones, of which "default" is
// taken.
Result<std::optional<std::string>> template_in(const Json& config) {
  const Json* value = config.find("chat_template");
  if (!value || value->is_null()) return std::optional<std::string>();
  if (value->as_string()) return std::optional(*value->as_string());
  if (value->as_array())
    for (const Json& named : *value->as_array()) {
      const Json* name = named.find("name");
      const Json* source = named.find("template");
      if (name && name->as_string() && *name->as_string() == "default" && source &&
          source->as_string())
        return std::optional(*source->as_string());
    }
  return fail("chat_template: expected a text, or a list with one named 'default', got {}",
              shown(*value));
}

Result<ChatTemplate> parse_template(const std::string& source, const std::string& place) {
  Result<ChatTemplate> parsed = ChatTemplate::parse(source);
  if (!parsed) return fail("{}: {}", place, parsed.error());
  return parsed;
}

Result<TokenizerFolder> load_gguf(const std::string& path) {
  const Result<GgufFile> file = GgufFile::open(path);
  if (!file) return file.failure();
  Result<Tokenizer> tokenizer = gguf_tokenizer(*file);
  if (!tokenizer) return tokenizer.failure();
  TokenizerFolder out{std::move(*tokenizer), {}, Json::object()};
  const Json& metadata = file->metadata();
  for (const auto& [name, key] : {std::pair("bos_token", "tokenizer.ggml.bos_token_id"),
                                  std::pair("eos_token", "tokenizer.ggml.eos_token_id"),
                                  std::pair("unk_token", "tokenizer.ggml.unknown_token_id"),
                                  std::pair("pad_token", "tokenizer.ggml.padding_token_id")})
    if (const Json* value = metadata.find(key)) {
      const Result<int64_t> id = value->as_int();
      if (!id || *id < 0 || *id >= out.tokenizer.end_id())
        return fail("{}: {}: expected an id below {}, got {}", path, key, out.tokenizer.end_id(),
                    shown(*value));
      out.special_tokens.set(name, out.tokenizer.token_of(static_cast<int32_t>(*id)));
    }
  if (const Json* source = metadata.find("tokenizer.chat_template")) {
    const std::string place = path + ": tokenizer.chat_template";
    if (!source->as_string()) return fail("{}: expected a text, got {}", place, shown(*source));
    Result<ChatTemplate> parsed = parse_template(*source->as_string(), place);
    if (!parsed) return parsed.failure();
    out.chat_template = std::move(*parsed);
  }
  return out;
}

}  // namespace

Result<TokenizerFolder> TokenizerFolder::load(const std::string& folder) {
  if (GgufFile::is_gguf(folder)) return load_gguf(folder);
  Result<Tokenizer> tokenizer = Tokenizer::load(folder + "/tokenizer.json");
  if (!tokenizer) return tokenizer.failure();
  TokenizerFolder out{std::move(*tokenizer), {}, Json::object()};
  if (const std::string path = folder + "/tokenizer_config.json"; file_exists(path)) {
    const Result<std::string> text = read_text_file(path, kMaxConfigBytes);
    if (!text) return text.failure();
    const Result<Json> config = parse_json(*text);
    if (!config) return fail("{}: {}", path, config.error());
    for (const std::string_view name : {"bos_token", "eos_token", "unk_token", "pad_token"})
      if (const Json* value = config->find(name))
        if (const std::string* content = token_content(*value))
          out.special_tokens.set(name, *content);
    const Result<std::optional<std::string>> source = template_in(*config);
    if (!source) return fail("{}: {}", path, source.error());
    if (*source) {
      Result<ChatTemplate> parsed = parse_template(**source, path + ": chat_template");
      if (!parsed) return parsed.failure();
      out.chat_template = std::move(*parsed);
    }
  }
  if (const std::string path = folder + "/chat_template.jinja"; file_exists(path)) {
    const Result<std::string> source = read_text_file(path, kMaxConfigBytes);
    if (!source) return source.failure();
    Result<ChatTemplate> parsed = parse_template(*source, path);
    if (!parsed) return parsed.failure();
    out.chat_template = std::move(*parsed);
  }
  return out;
}

Result<std::string> TokenizerFolder::render_chat(const Json& messages, const Json& tools,
                                                 bool add_generation_prompt) const {
  if (!chat_template) return fail("the model has no chat template");
  if (!messages.as_array()) return fail("messages: expected an array, got {}", shown(messages));
  Json variables = special_tokens;
  variables.set("messages", messages);
  variables.set("tools", tools);
  variables.set("documents", nullptr);
  variables.set("add_generation_prompt", add_generation_prompt);
  return chat_template->render(variables);
}

}  // namespace stow::text
