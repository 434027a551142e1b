#include "stowage/text/tokenizer_export.h"

#include "stowage/base/text_file.h"
#include "stowage/io/files.h"
#include "stowage/text/tokenizer_folder.h"
#include "stowage/text/tokenizer_gguf.h"

namespace stow::text {
namespace {

// Every file that transformers reads of a tokenizer of the supported kinds.
constexpr std::string_view kFiles[] = {
    "tokenizer.json",    "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "tokenizer.model",       "vocab.json",
    "merges.txt",        "chat_template.jinja",   "generation_config.json"};

Result<void> write_gguf(const std::string& path, const std::string& folder) {
  const Result<GgufFile> file = GgufFile::open(path);
  if (!file) return file.failure();
  const Result<Json> tokenizer = gguf_tokenizer_json(*file);
  if (!tokenizer) return tokenizer.failure();
  // Reading it as a model's checks it and gives the names of the special tokens.
  const Result<TokenizerFolder> model = TokenizerFolder::load(path);
  if (!model) return model.failure();
  Json config = model->special_tokens;
  config.set("tokenizer_class", "PreTrainedTokenizerFast");
  config.set("clean_up_tokenization_spaces", false);
  if (const Json* source = file->metadata().find("tokenizer.chat_template"))
    config.set("chat_template", *source);
  if (Result<void> done = write_text_file(folder + "/tokenizer.json", tokenizer->dump() + "\n");
      !done)
    return done;
  return write_text_file(folder + "/tokenizer_config.json", config.dump() + "\n");
}

}  // namespace

Result<void> write_tokenizer_files(const std::string& model, const std::string& folder) {
  if (GgufFile::is_gguf(model)) return write_gguf(model, folder);
  for (const std::string_view name : kFiles) {
    const std::string from = model + "/" + std::string(name);
    if (!file_exists(from)) continue;
    const Result<std::string> text = read_text_file(from);
    if (!text) return text.failure();
    if (Result<void> done = write_text_file(folder + "/" + std::string(name), *text); !done)
      return done;
  }
  return {};
}

}  // namespace stow::text
