// `tokenize`: lines of texts, conversations or ids to ids and text.
#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>

#include "stowage/base/printable.h"
#include "stowage/cli/arguments.h"
#include "stowage/cli/commands.h"
#include "stowage/io/json.h"
#include "stowage/io/json_fields.h"
#include "stowage/text/tokenizer_folder.h"

namespace stow {
namespace {

using text::TokenizerFolder;

Json json_of(std::span<const int32_t> ids) {
  Json array = Json::array();
  for (const int32_t id : ids) array.push_back(id);
  return array;
}

Result<std::vector<int32_t>> ids_of(const Json& value, int32_t end_id) {
  if (!value.as_array()) return fail("ids: expected an array of ids, got {}", shown(value));
  std::vector<int32_t> ids;
  ids.reserve(value.as_array()->size());
  for (const Json& element : *value.as_array()) {
    const Result<int64_t> id = element.as_int();
    if (!id || *id < 0 || *id >= end_id)
      return fail("ids: expected ids from 0 to {}, got {}", end_id - 1, element.dump());
    ids.push_back(static_cast<int32_t>(*id));
  }
  return ids;
}

// The line that answers a line.
Result<Json> answer(const TokenizerFolder& model, const Json& line, bool decode) {
  const Json* given_text = line.find("text");
  const Json* messages = line.find("messages");
  const Json* given_ids = line.find("ids");
  if ((given_text != nullptr) + (messages != nullptr) + (given_ids != nullptr) != 1)
    return fail("expected an object with one of the keys text, messages and ids, got {}",
                !line.is_object()                     ? shown(line)
                : given_text || messages || given_ids ? "several of them"
                                                      : "none of them");
  if (decode && !given_ids)
    return fail("--decode: expected the key ids, got {}", messages ? "messages" : "text");
  std::string text;
  std::vector<int32_t> ids;
  if (given_ids) {
    Result<std::vector<int32_t>> read = ids_of(*given_ids, model.tokenizer.end_id());
    if (!read) return read.failure();
    ids = std::move(*read);
    text = model.tokenizer.decode(ids);
  } else {
    if (messages) {
      const Json* tools = line.find("tools");
      Result<std::string> rendered = model.render_chat(*messages, tools ? *tools : Json());
      if (!rendered) return rendered.failure();
      text = std::move(*rendered);
    } else if (given_text->as_string()) {
      text = *given_text->as_string();
    } else {
      return fail("text: expected a text, got {}", shown(*given_text));
    }
    // A rendered template has its special tokens in it.
    Result<std::vector<int32_t>> encoded =
        model.tokenizer.encode(text, {.add_special_tokens = !messages});
    if (!encoded) return encoded.failure();
    ids = std::move(*encoded);
  }
  return Json::object({{"ids", json_of(ids)}, {"text", std::move(text)}});
}

}  // namespace

Result<int> run_tokenize(std::span<const std::string> arguments) {
  std::string model_path, input = "-";
  bool decode = false;
  CLI::App app(
      "Turns texts into the ids of a model's tokenizer, and back. Lines in: {\"text\": …}, "
      "{\"messages\": […]} or "
      "{\"ids\": […]}. Lines out: {\"ids\": […], \"text\": …}.",
      "./stowage tokenize");
  app.set_help_flag("-h,--help", "This text");
  app.add_option("--model", model_path, "The model: a folder with tokenizer.json, or a GGUF file")
      ->type_name("PATH")
      ->required();
  app.add_flag("--decode", decode, "Every line has ids");
  app.add_option("FILE", input, "JSON lines; - is standard input (default)")
      ->type_name("FILE.jsonl");
  const Result<bool> helped = parse_or_help(app, "tokenize", arguments);
  if (!helped) return helped.failure();
  if (*helped) return kExitDone;
  const Result<TokenizerFolder> model = TokenizerFolder::load(model_path);
  if (!model) return model.failure();
  std::ifstream file;
  if (input != "-") {
    file.open(input);
    if (!file) return fail("{}: {}", input, std::strerror(errno));
  }
  Result<JsonLines> out = JsonLines::open("-");
  if (!out) return out.failure();
  Result<void> written;  // no fault of the line, which its message must not name
  const auto take = [&](const Json& line) -> Result<void> {
    const Result<Json> answered = answer(*model, line, decode);
    if (!answered) return answered.failure();
    return written = out->write(*answered);
  };
  const Result<void> read = read_json_lines(input == "-" ? std::cin : file, input, take);
  if (!written) return written.failure();
  if (!read) return read.failure();
  return kExitDone;
}

}  // namespace stow
