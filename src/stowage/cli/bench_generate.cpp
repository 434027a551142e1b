// `bench generate`: how fast a model reads a prompt and makes tokens.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>

#include "stowage/base/bytes.h"
#include "stowage/cli/arguments.h"
#include "stowage/cli/commands.h"
#include "stowage/cli/model_arguments.h"
#include "stowage/lm/generate.h"
#include "stowage/lm/score.h"

namespace stow {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Bytes of the weights that one token reads: all but an embedding that is not the head as well.
int64_t bytes_per_token(const lm::Model& model) {
  int64_t bytes = 0;
  for (const DeviceBufferPtr& weight : model.weights()) bytes += weight->bytes();
  return model.decoder().tied ? bytes : bytes - model.weights()[0]->bytes();
}

}  // namespace

Result<int> run_bench_generate(std::span<const std::string> command_line) {
  ModelArguments arguments;
  int64_t prompt_tokens = 512, tokens = 64, rows = 1;
  CLI::App app("Measures the prefill and the decoding of a model on seeded tokens.",
               "./stowage bench generate");
  app.set_help_flag("-h,--help", "This text");
  arguments.add_to(app);
  app.add_option("--prompt-tokens", prompt_tokens, "Tokens of a prompt (default 512)")
      ->check(CLI::PositiveNumber);
  app.add_option("--max-tokens", tokens, "New tokens a prompt (default 64)")
      ->check(CLI::PositiveNumber);
  app.add_option("--batch", rows, "Prompts at a time (default 1)")->check(CLI::PositiveNumber);
  const Result<bool> helped = parse_or_help(app, "bench generate", command_line);
  if (!helped) return helped.failure();
  if (*helped) return kExitDone;
  if (Result<void> read = arguments.read(); !read) return fail("bench generate: {}", read.error());
  Result<lm::ModelFiles> files = lm::ModelFiles::open(arguments.model);
  if (!files) return files.failure();
  Result<std::optional<JsonLines>> json = open_json(arguments.json_path);
  if (!json) return json.failure();
  lm::GenerateOptions options;
  options.max_tokens = tokens + 1;
  options.rows = rows;
  if (Result<void> set = arguments.set(options, *files); !set) return set.failure();
  std::vector<std::vector<int32_t>> prompts(static_cast<size_t>(rows));
  for (size_t i = 0; i < prompts.size(); ++i)
    for (int64_t j = 0; j < prompt_tokens; ++j)
      prompts[i].push_back(static_cast<int32_t>(lm::uniform_of(1, i, static_cast<uint64_t>(j)) *
                                                static_cast<double>(files->config.vocab_size)));
  if (Result<void> good = lm::check_prompts(*files, prompts, options); !good)
    return fail("bench generate: {}", good.error());
  const lm::GeneratePrograms programs = lm::plan_generate(
      files->config, std::vector<int64_t>(prompts.size(), prompt_tokens), options);
  const DevicePtr device =
      lm::device_for(programs.weights().memory, arguments.memory_bytes, options.threads);
  const auto begin = Clock::now();
  const Result<lm::Model> model = lm::load(std::move(*files), programs.weights(), device);
  if (!model) return model.failure();
  const double load_s = seconds_since(begin);

  // The first pass finds memory and caches cold; the best of the others counts.
  double prefill_s = 1e30, decode_s = 1e30;
  for (int pass = 0; pass < 3; ++pass) {
    lm::Decoding decoding(*model, programs);
    const auto start = Clock::now();
    (void)decoding.prefill(prompts);
    prefill_s = std::min(prefill_s, seconds_since(start));
    std::vector<int32_t> next(prompts.size(), 1);
    std::vector<int32_t> places(prompts.size(), static_cast<int32_t>(prompt_tokens));
    const auto decode = Clock::now();
    for (int64_t i = 0; i < tokens; ++i) {
      (void)decoding.decode(next, places);
      for (int32_t& place : places) ++place;
    }
    decode_s = std::min(decode_s, seconds_since(decode));
  }
  const auto rate = [&](int64_t n, double s) { return static_cast<double>(n * rows) / s; };
  const double read_rate =
      static_cast<double>(bytes_per_token(*model)) * static_cast<double>(tokens) / decode_s;
  fmt::print(
      arguments.text_stream(),
      "{}loaded in {:.2f} s\nprefill {:.1f} tokens/s, decode {:.1f} tokens/s, which reads {} of "
      "weights a token: {}/s\n{}",
      describe_model(model->files(), programs.weights()), load_s, rate(prompt_tokens, prefill_s),
      rate(tokens, decode_s), format_bytes(bytes_per_token(*model)),
      format_bytes(static_cast<int64_t>(read_rate)),
      describe_peaks(programs.peak_bytes(), *device));
  Json summary = Json::object({{"summary", true},
                               {"prefill_tokens_per_s", rate(prompt_tokens, prefill_s)},
                               {"decode_tokens_per_s", rate(tokens, decode_s)},
                               {"read_bytes_per_token", bytes_per_token(*model)},
                               {"load_s", load_s}});
  set_peaks(summary, programs.peak_bytes(), device.get());
  if (Result<void> written = write_json(*json, summary); !written) return written.failure();
  return kExitDone;
}

}  // namespace stow
