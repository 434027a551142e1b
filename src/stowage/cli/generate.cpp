// `generate`: prompts continued by a model.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>

#include "stowage/base/bytes.h"
#include "stowage/base/error.h"
#include "stowage/cli/arguments.h"
#include "stowage/cli/commands.h"
#include "stowage/cli/model_arguments.h"
#include "stowage/io/json_fields.h"
#include "stowage/lm/generate.h"
#include "stowage/lm/score.h"

namespace stow {
namespace {

struct GenerateArguments : ModelArguments {
  std::optional<std::string> prompt, chat;
  std::string prompts_path;
  lm::GenerateOptions options;
  int64_t plan_length = 0;
};

Result<std::vector<int32_t>> chat_ids(const lm::ModelFiles& files, const Json& messages,
                                      const Json& tools) {
  Result<std::string> rendered = files.text->render_chat(messages, tools);
  if (!rendered) return rendered.failure();
  // A rendered template has its special tokens in it.
  return files.text->tokenizer.encode(*rendered, {.add_special_tokens = false});
}

Result<std::vector<int32_t>> ids_of_line(const lm::ModelFiles& files, const Json& line) {
  const Json* prompt = line.find("prompt");
  const Json* messages = line.find("messages");
  if ((prompt != nullptr) + (messages != nullptr) != 1)
    return fail("expected an object with one of the keys prompt and messages, got {}",
                !line.is_object() ? shown(line) : prompt ? "both" : "neither");
  if (messages) {
    const Json* tools = line.find("tools");
    return chat_ids(files, *messages, tools ? *tools : Json());
  }
  if (!prompt->as_string()) return fail("prompt: expected a text, got {}", shown(*prompt));
  return files.text->tokenizer.encode(*prompt->as_string());
}

Result<std::vector<std::vector<int32_t>>> read_prompts(const GenerateArguments& arguments,
                                                       const lm::ModelFiles& files) {
  std::vector<std::vector<int32_t>> prompts;
  if (arguments.prompt || arguments.chat) {
    Json messages = Json::array();
    if (arguments.chat)
      messages.push_back(Json::object({{"role", "user"}, {"content", *arguments.chat}}));
    Result<std::vector<int32_t>> ids = arguments.prompt
                                           ? files.text->tokenizer.encode(*arguments.prompt)
                                           : chat_ids(files, messages, Json());
    if (!ids) return fail("{}: {}", arguments.prompt ? "--prompt" : "--chat", ids.error());
    prompts.push_back(std::move(*ids));
    return prompts;
  }
  const auto take = [&](const Json& line) -> Result<void> {
    Result<std::vector<int32_t>> ids = ids_of_line(files, line);
    if (!ids) return ids.failure();
    if (ids->empty()) return fail("expected at least one token, got none");
    prompts.push_back(std::move(*ids));
    return {};
  };
  if (Result<void> read = read_json_lines(arguments.prompts_path, take); !read)
    return read.failure();
  if (prompts.empty())
    return fail("{}: expected at least one line, got none", arguments.prompts_path);
  return prompts;
}

Json answer(const lm::Generated& made) {
  Json ids = Json::array(), logprobs = Json::array();
  for (const int32_t id : made.ids) ids.push_back(id);
  for (const float x : made.logprobs) logprobs.push_back(x);
  return Json::object(
      {{"ids", std::move(ids)},
       {"text", made.text},
       {"logprobs", std::move(logprobs)},
       {"finish_reason", made.finish == lm::FinishReason::kStop ? "stop" : "length"}});
}

std::string describe(const lm::GeneratePrograms& programs) {
  const lm::GenerateShape& shape = programs.shape();
  std::string text = fmt::format(
      "plan: batch {}, prefill in chunks of {} tokens, KV cache of {} positions a prompt: {}\n",
      shape.rows, shape.chunk, shape.cache, format_bytes(programs.cache_bytes()));
  for (const lm::GeneratePhase& phase : programs.phases())
    text += fmt::format("  {:<8} peak {}\n", phase.name, format_bytes(phase.peak_bytes[0]));
  return text;
}

Result<int> run(GenerateArguments& arguments) {
  Result<lm::ModelFiles> opened = lm::ModelFiles::open(arguments.model);
  if (!opened) return opened.failure();
  lm::ModelFiles files = std::move(*opened);
  lm::GenerateOptions& options = arguments.options;
  if (Result<void> set = arguments.set(options, files); !set) return set.failure();
  std::vector<std::vector<int32_t>> prompts;
  std::vector<int64_t> lengths;
  if (arguments.plan && arguments.plan_length > 0) {
    const int64_t most = files.config.max_position_embeddings;
    if (most > 0 && arguments.plan_length + options.max_tokens > most)
      return fail(
          "generate: --length {} and --max-tokens {} are more than the {} positions of the model",
          arguments.plan_length, options.max_tokens, most);
    lengths.assign(static_cast<size_t>(std::max<int64_t>(1, options.rows)), arguments.plan_length);
  } else {
    if (!arguments.prompt && !arguments.chat && arguments.prompts_path.empty())
      return fail("generate: expected one of --prompt TEXT, --chat TEXT and --prompts FILE{}, got "
                  "none",
                  arguments.plan ? ", or --length N" : "");
    if (!files.text) return fail("{}", files.no_text);
    Result<std::vector<std::vector<int32_t>>> read = read_prompts(arguments, files);
    if (!read) return read.failure();
    prompts = std::move(*read);
    if (Result<void> good = lm::check_prompts(files, prompts, options); !good)
      return fail("generate: {}", good.error());
    for (const std::vector<int32_t>& prompt : prompts)
      lengths.push_back(static_cast<int64_t>(prompt.size()));
  }
  Result<std::optional<JsonLines>> json = open_json(arguments.json_path);
  if (!json) return json.failure();
  const lm::GeneratePrograms programs = lm::plan_generate(files.config, lengths, options);
  const BytesByKind predicted = programs.peak_bytes();
  Json summary = Json::object({{"summary", true}});
  if (arguments.plan) {
    fmt::print(arguments.text_stream(), "{}{}{}", describe_model(files, programs.weights()),
               describe(programs), to_string(programs.decode()->memory_analysis()));
    set_peaks(summary, predicted, nullptr);
    if (Result<void> written = write_json(*json, summary); !written) return written.failure();
    return kExitDone;
  }
  // The text alone goes to standard output: what is said of the run goes to standard error.
  const bool is_single = prompts.size() == 1 && arguments.json_path != "-";
  fmt::print(stderr, "{}{}", describe_model(files, programs.weights()), describe(programs));
  const DevicePtr device =
      lm::device_for(programs.weights().memory, arguments.memory_bytes, options.threads);
  const Result<lm::Model> model = lm::load(std::move(files), programs.weights(), device);
  if (!model) return model.failure();
  const auto begin = std::chrono::steady_clock::now();
  const Result<std::vector<lm::Generated>> made =
      lm::generate(*model, programs, prompts, options, [&](size_t, const std::string& piece) {
        if (!is_single) return;
        fmt::print("{}", piece);
        std::fflush(stdout);
      });
  if (!made) return made.failure();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (is_single) fmt::print("\n");
  int64_t n = 0;
  for (const lm::Generated& one : *made) {
    n += static_cast<int64_t>(one.ids.size());
    const Json line = answer(one);
    if (Result<void> written = write_json(*json, line); !written) return written.failure();
    if (!is_single && arguments.json_path.empty()) fmt::print("{}\n", line.dump());
  }
  const double rate = static_cast<double>(n) / seconds;
  fmt::print(stderr, "{} tokens in {:.2f} s, {:.1f} tokens/s\n{}", n, seconds, rate,
             describe_peaks(predicted, *device));
  summary.set("tokens", n);
  summary.set("tokens_per_s", rate);
  set_peaks(summary, predicted, device.get());
  if (Result<void> written = write_json(*json, summary); !written) return written.failure();
  return kExitDone;
}

}  // namespace

Result<int> run_generate(std::span<const std::string> command_line) {
  GenerateArguments arguments;
  lm::GenerateOptions& options = arguments.options;
  CLI::App app("Continues prompts with a model, under a memory budget. The text goes to standard "
               "output as it is made; of several prompts a JSON line each does.",
               "./stowage generate");
  app.set_help_flag("-h,--help", "This text");
  arguments.add_to(app);
  app.add_option("--prompt", arguments.prompt, "A text to continue")->type_name("TEXT");
  app.add_option("--chat", arguments.chat, "A message to answer, by the model's chat template")
      ->type_name("TEXT");
  app.add_option("--prompts", arguments.prompts_path, "Lines with prompt, or messages")
      ->type_name("FILE.jsonl");
  app.add_option("--max-tokens", options.max_tokens, "New tokens a prompt (default 128)")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24));
  app.add_option("--temperature", options.sampling.temperature,
                 "Divides the logits (default 1); 0 takes the most probable token")
      ->type_name("X")
      ->check(CLI::Range(0.0, 1e6));
  app.add_option("--top-k", options.sampling.top_k, "Only the k most probable tokens; 0: all")
      ->type_name("K")
      ->check(CLI::Range(int64_t{-1}, int64_t{1} << 31));
  app.add_option("--top-p", options.sampling.top_p,
                 "Only the most probable tokens that make up this probability (default 1)")
      ->type_name("P")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--seed", options.seed, "Of the sampling (default 0)")->type_name("N");
  app.add_option("--stop", options.stop, "A text that ends the answer; may be given again")
      ->type_name("TEXT");
  app.add_option("--batch", options.rows, "Prompts at a time; by default up to 8, as fits")
      ->type_name("N")
      ->check(CLI::PositiveNumber);
  app.add_option("--length", arguments.plan_length, "With --plan: tokens of a prompt to plan for")
      ->type_name("N")
      ->check(CLI::PositiveNumber);
  const Result<bool> helped = parse_or_help(app, "generate", command_line);
  if (!helped) return helped.failure();
  if (*helped) return kExitDone;
  if (Result<void> read = arguments.read(); !read) return fail("generate: {}", read.error());
  if (arguments.prompt.has_value() + arguments.chat.has_value() + !arguments.prompts_path.empty() >
      1)
    return fail("generate: --prompt, --chat and --prompts exclude one another");
  const NamedFile written[] = {{"--json", arguments.json_path}};
  const NamedFile given[] = {{"--prompts", arguments.prompts_path}};
  if (Result<void> distinct = check_distinct("generate: ", written, given); !distinct)
    return distinct.failure();
  return run(arguments);
}

}  // namespace stow
