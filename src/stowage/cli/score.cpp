// `score`: log-probabilities of tokens under a model, and its perplexity.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <map>

#include "stowage/base/bytes.h"
#include "stowage/base/error.h"
#include "stowage/cli/arguments.h"
#include "stowage/cli/commands.h"
#include "stowage/cli/model_arguments.h"
#include "stowage/io/json_fields.h"
#include "stowage/io/safetensors.h"
#include "stowage/lm/score.h"

namespace stow {
namespace {

using lm::TokenRows;

struct ScoreArguments : ModelArguments {
  std::string tokens_path, data_path, out_path;
  bool logits = false, hidden = false;
  int64_t rows = 0, plan_rows = 1, plan_length = 0;
};

Result<std::vector<int32_t>> read_i32(const SafetensorsFile& file, const TensorInfo& tensor) {
  if (tensor.dtype != DType::kI32)
    return fail("{}: '{}' is {}, expected i32", file.path(), tensor.name,
                tensor_type(tensor.dtype, tensor.shape));
  std::vector<int32_t> values(static_cast<size_t>(tensor.n_bytes) / sizeof(int32_t));
  if (Result<void> read = file.read(tensor, std::as_writable_bytes(std::span(values))); !read)
    return read.failure();
  return values;
}

Result<TokenRows> read_tokens(const std::string& path, int64_t vocab) {
  const Result<SafetensorsFile> file = SafetensorsFile::open(path);
  if (!file) return file.failure();
  TokenRows rows;
  const TensorInfo* tokens = file->find("tokens");
  if (!tokens) return fail("{}: no tensor 'tokens'; expected i32[rows,length]", path);
  if (tokens->shape.size() != 2)
    return fail("{}: 'tokens' is {}, expected i32[rows,length]", path,
                tensor_type(tokens->dtype, tokens->shape));
  rows.n = tokens->shape[0];
  rows.length = tokens->shape[1];
  Result<std::vector<int32_t>> values = read_i32(*file, *tokens);
  if (!values) return values.failure();
  rows.tokens = std::move(*values);
  const TensorInfo* start = file->find("start");
  const TensorInfo* lengths = file->find("lengths");
  for (const TensorInfo* tensor : {start, lengths})
    if (tensor && tensor->shape != std::vector<int64_t>{rows.n})
      return fail("{}: '{}' is {}, expected i32[{}]", path, tensor->name,
                  tensor_type(tensor->dtype, tensor->shape), rows.n);
  if (start || lengths) {
    rows.start.assign(static_cast<size_t>(rows.n), 0);
    if (start) {
      Result<std::vector<int32_t>> read = read_i32(*file, *start);
      if (!read) return read.failure();
      rows.start = std::move(*read);
    }
    for (const int32_t s : rows.start)
      rows.lengths.push_back(static_cast<int32_t>(rows.length) - s);
    if (lengths) {
      Result<std::vector<int32_t>> read = read_i32(*file, *lengths);
      if (!read) return read.failure();
      rows.lengths = std::move(*read);
    }
  }
  if (Result<void> good = rows.check(vocab); !good) return fail("{}: {}", path, good.error());
  return rows;
}

// The tokens of a line of JSON.
Result<std::vector<int32_t>> tokens_of(const lm::ModelFiles& files, const Json& line) {
  const Json* text = line.find("text");
  const Json* messages = line.find("messages");
  const Json* prompt = line.find("prompt");
  const Json* completion = line.find("completion");
  const Json* tokens = line.find("tokens");
  if ((text != nullptr) + (messages != nullptr) + (prompt != nullptr) + (tokens != nullptr) != 1)
    return fail("expected an object with text, messages, tokens, or prompt and completion, got {}",
                !line.is_object()                      ? shown(line)
                : text || messages || prompt || tokens ? "several of them"
                                                       : "none of them");
  if (tokens) {
    if (!tokens->as_array())
      return fail("tokens: expected an array of ids, got {}", shown(*tokens));
    std::vector<int32_t> ids;
    for (const Json& element : *tokens->as_array()) {
      const Result<int64_t> id = element.as_int();
      if (!id || *id < 0 || *id >= files.config.vocab_size)
        return fail("tokens: expected ids from 0 to {}, got {}", files.config.vocab_size - 1,
                    element.dump());
      ids.push_back(static_cast<int32_t>(*id));
    }
    return ids;
  }
  if (!files.text)
    return fail("expected the key tokens, as there is no tokenizer: {}", files.no_text);
  std::string whole;
  if (messages) {
    const Json* tools = line.find("tools");
    Result<std::string> rendered =
        files.text->render_chat(*messages, tools ? *tools : Json(), false);
    if (!rendered) return rendered.failure();
    whole = std::move(*rendered);
  } else {
    for (const Json* part : {text, prompt, completion}) {
      if (!part) continue;
      if (!part->as_string())
        return fail("text, prompt, completion: expected a text, got {}", shown(*part));
      whole += *part->as_string();
    }
  }
  return files.text->tokenizer.encode(whole, {.add_special_tokens = !messages});
}

Result<std::vector<std::vector<int32_t>>> read_lines(const std::string& path,
                                                     const lm::ModelFiles& files) {
  std::vector<std::vector<int32_t>> rows;
  const auto take = [&](const Json& line) -> Result<void> {
    Result<std::vector<int32_t>> ids = tokens_of(files, line);
    if (!ids) return ids.failure();
    if (ids->empty()) return fail("expected at least one token, got none");
    for (const int32_t id : *ids)
      if (id >= files.config.vocab_size)
        return fail("the tokenizer gives id {}, the model has {}", id, files.config.vocab_size);
    rows.push_back(std::move(*ids));
    return {};
  };
  if (Result<void> read = read_json_lines(path, take); !read) return read.failure();
  if (rows.empty()) return fail("{}: expected at least one line, got none", path);
  return rows;
}

// A length with two significant bits at least as large, so that few programs serve all lengths.
int64_t padded_length(int64_t length) {
  int64_t step = 16;
  while (step * 4 < length) step *= 2;
  return (length + step - 1) / step * step;
}

// Rows of one length, and where they stand in the file.
struct Bucket {
  TokenRows rows;
  std::vector<size_t> places;
};

std::vector<Bucket> buckets_of(const std::vector<std::vector<int32_t>>& lines) {
  std::map<int64_t, Bucket, std::greater<>> buckets;  // the longest first
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto n = static_cast<int64_t>(lines[i].size());
    const int64_t length = padded_length(n);
    Bucket& bucket = buckets[length];
    bucket.rows.length = length;
    ++bucket.rows.n;
    bucket.rows.tokens.insert(bucket.rows.tokens.end(), lines[i].begin(), lines[i].end());
    bucket.rows.tokens.resize(static_cast<size_t>(bucket.rows.n * length), 0);
    bucket.rows.start.push_back(0);
    bucket.rows.lengths.push_back(static_cast<int32_t>(n));
    bucket.places.push_back(i);
  }
  std::vector<Bucket> all;
  for (auto& [length, bucket] : buckets) all.push_back(std::move(bucket));
  return all;
}

// Results of all rows, in the order of the file, as wide as the longest row.
struct Collected {
  int64_t n = 0, length = 0, states = 0, vocab = 0, dim = 0;
  lm::ScoreResult all;

  void place(const Bucket& bucket, const lm::ScoreResult& part, bool logits, bool hidden) {
    const int64_t t = bucket.rows.length, shown = std::min(t, length);
    for (size_t i = 0; i < bucket.places.size(); ++i) {
      const auto from = static_cast<int64_t>(i), to = static_cast<int64_t>(bucket.places[i]);
      std::copy_n(part.logprobs.begin() + from * (t - 1), shown - 1,
                  all.logprobs.begin() + to * (length - 1));
      if (logits)
        std::copy_n(part.logits.begin() + from * t * vocab, shown * vocab,
                    all.logits.begin() + to * length * vocab);
      for (int64_t l = 0; hidden && l < states; ++l)
        std::copy_n(part.hidden.begin() + (l * bucket.rows.n + from) * t * dim, shown * dim,
                    all.hidden.begin() + (l * n + to) * length * dim);
    }
    all.n_tokens += part.n_tokens;
  }
};

Result<void> write_out(const std::string& path, const Collected& c) {
  std::vector<TensorBytes> tensors;
  const auto add = [&](const char* name, std::vector<int64_t> shape,
                       const std::vector<float>& data) {
    tensors.push_back({name, DType::kF32, std::move(shape), std::as_bytes(std::span(data)), {}});
  };
  add("logprobs", {c.n, c.length - 1}, c.all.logprobs);
  if (!c.all.logits.empty()) add("logits", {c.n, c.length, c.vocab}, c.all.logits);
  if (!c.all.hidden.empty()) add("hidden", {c.states, c.n, c.length, c.dim}, c.all.hidden);
  return save_safetensors(path, tensors);
}

Result<int> run(const ScoreArguments& arguments) {
  Result<lm::ModelFiles> opened = lm::ModelFiles::open(arguments.model);
  if (!opened) return opened.failure();
  lm::ModelFiles files = std::move(*opened);
  const int64_t vocab = files.config.vocab_size;
  std::vector<Bucket> buckets;
  Collected collected;
  if (!arguments.tokens_path.empty()) {
    Result<TokenRows> rows = read_tokens(arguments.tokens_path, vocab);
    if (!rows) return rows.failure();
    Bucket bucket{std::move(*rows), {}};
    for (int64_t i = 0; i < bucket.rows.n; ++i) bucket.places.push_back(static_cast<size_t>(i));
    collected.length = bucket.rows.length;
    buckets.push_back(std::move(bucket));
  } else if (!arguments.data_path.empty()) {
    const auto lines = read_lines(arguments.data_path, files);
    if (!lines) return lines.failure();
    buckets = buckets_of(*lines);
    for (const std::vector<int32_t>& line : *lines)
      collected.length = std::max(collected.length, static_cast<int64_t>(line.size()));
  } else if (arguments.plan && arguments.plan_length > 0) {
    Bucket bucket;
    bucket.rows.n = arguments.plan_rows;
    bucket.rows.length = arguments.plan_length;
    buckets.push_back(std::move(bucket));
  } else {
    return fail("score: expected --tokens FILE or --data FILE{}, got neither",
                arguments.plan ? ", or --length N" : "");
  }
  lm::ScoreOptions options;
  options.logits = arguments.logits;
  options.hidden = arguments.hidden;
  options.rows = arguments.rows;
  if (Result<void> set = arguments.set(options, files); !set) return set.failure();
  Result<std::optional<JsonLines>> json = open_json(arguments.json_path);
  if (!json) return json.failure();
  std::FILE* const text = arguments.text_stream();

  std::vector<lm::ScoreProgram> programs;
  BytesByKind predicted{};
  for (const Bucket& bucket : buckets) {
    programs.push_back(lm::plan_score(files.config, bucket.rows, options));
    options.weights = programs.back().weights().memory;  // of all alike
    const BytesByKind peak = programs.back().peak_bytes();
    for (size_t kind = 0; kind < peak.size(); ++kind)
      predicted[kind] = std::max(predicted[kind], peak[kind]);
  }
  const lm::WeightOptions weights = programs[0].weights();
  fmt::print(text, "{}", describe_model(files, weights));
  for (size_t i = 0; i < buckets.size(); ++i) {
    const lm::ScoreShape& shape = programs[i].shape();
    fmt::print(text, "plan: rows {} x {} tokens, batch {}{}, peak {}\n", buckets[i].rows.n,
               shape.length, shape.rows,
               shape.logits ? "" : fmt::format(", logits in chunks of {} tokens", shape.chunk),
               format_bytes(programs[i].peak_bytes()[0]));
  }
  Json summary = Json::object({{"summary", true}});
  if (arguments.plan) {
    fmt::print(text, "{}", to_string(programs[0].analysis()));
    set_peaks(summary, predicted, nullptr);
    if (Result<void> written = write_json(*json, summary); !written) return written.failure();
    return kExitDone;
  }

  const DevicePtr device = lm::device_for(weights.memory, arguments.memory_bytes, options.threads);
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  Result<lm::Model> model = lm::load(std::move(files), weights, device);
  if (!model) return model.failure();
  const auto loaded = Clock::now();
  for (const Bucket& bucket : buckets) collected.n += bucket.rows.n;
  collected.vocab = vocab;
  collected.dim = model->decoder().dim;
  collected.states = model->decoder().layers + 1;
  const auto extent = [&](int64_t n) { return static_cast<size_t>(n); };
  collected.all.logprobs.resize(extent(collected.n * (collected.length - 1)));
  if (arguments.logits) collected.all.logits.resize(extent(collected.n * collected.length * vocab));
  if (arguments.hidden)
    collected.all.hidden.resize(
        extent(collected.states * collected.n * collected.length * collected.dim));
  for (size_t i = 0; i < buckets.size(); ++i)
    collected.place(buckets[i], lm::score(*model, programs[i], buckets[i].rows), arguments.logits,
                    arguments.hidden);
  const auto done = Clock::now();
  if (!arguments.out_path.empty())
    if (Result<void> written = write_out(arguments.out_path, collected); !written)
      return written.failure();

  const auto seconds = [](auto a, auto b) { return std::chrono::duration<double>(b - a).count(); };
  const double mean = collected.all.mean_logprob();
  const double rate = static_cast<double>(collected.all.n_tokens) / seconds(loaded, done);
  fmt::print(text, "loaded in {:.2f} s; {} tokens scored in {:.2f} s, {:.0f} tokens/s\n",
             seconds(begin, loaded), collected.all.n_tokens, seconds(loaded, done), rate);
  if (collected.all.n_tokens > 0)
    fmt::print(text, "perplexity {:.4f}, mean log-probability {:.6f}\n", std::exp(-mean), mean);
  fmt::print(text, "{}", describe_peaks(predicted, *device));
  summary.set("tokens", collected.all.n_tokens);
  summary.set("mean_logprob", mean);
  summary.set("perplexity", std::exp(-mean));
  summary.set("tokens_per_s", rate);
  summary.set("load_s", seconds(begin, loaded));
  set_peaks(summary, predicted, device.get());
  if (Result<void> written = write_json(*json, summary); !written) return written.failure();
  return kExitDone;
}

}  // namespace

Result<int> run_score(std::span<const std::string> command_line) {
  ScoreArguments arguments;
  CLI::App app("Scores tokens: the log-probability of each given those before it, under a memory "
               "budget.",
               "./stowage score");
  app.set_help_flag("-h,--help", "This text");
  arguments.add_to(app);
  app.add_option("--tokens", arguments.tokens_path,
                 "tokens i32[rows,length]; start and lengths i32[rows] where rows are padded")
      ->type_name("FILE.safetensors");
  app.add_option("--data", arguments.data_path,
                 "Lines with text, messages, tokens, or prompt and completion")
      ->type_name("FILE.jsonl");
  app.add_option("--out", arguments.out_path, "File for logprobs f32[rows,length-1]")
      ->type_name("FILE.safetensors");
  app.add_flag("--logits", arguments.logits, "Also logits f32[rows,length,vocabulary]");
  app.add_flag("--hidden", arguments.hidden, "Also hidden f32[layers+1,rows,length,width]");
  app.add_option("--batch", arguments.rows,
                 "Rows a call; by default what fits, 4096 tokens at most")
      ->type_name("N")
      ->check(CLI::PositiveNumber);
  app.add_option("--rows", arguments.plan_rows, "With --plan: rows to plan for")
      ->type_name("N")
      ->check(CLI::PositiveNumber);
  app.add_option("--length", arguments.plan_length, "With --plan: tokens a row to plan for")
      ->type_name("N")
      ->check(CLI::PositiveNumber);
  const Result<bool> helped = parse_or_help(app, "score", command_line);
  if (!helped) return helped.failure();
  if (*helped) return kExitDone;
  if (Result<void> read = arguments.read(); !read) return fail("score: {}", read.error());
  if (!arguments.tokens_path.empty() && !arguments.data_path.empty())
    return fail("score: --tokens and --data are two ways to name the same thing; give one");
  if ((arguments.logits || arguments.hidden) && arguments.out_path.empty() && !arguments.plan)
    return fail("score: --logits and --hidden have no effect without --out FILE");
  const NamedFile written[] = {{"--out", arguments.out_path}, {"--json", arguments.json_path}};
  const NamedFile given[] = {{"--tokens", arguments.tokens_path}, {"--data", arguments.data_path}};
  if (Result<void> distinct = check_distinct("score: ", written, given); !distinct)
    return distinct.failure();
  return run(arguments);
}

}  // namespace stow
