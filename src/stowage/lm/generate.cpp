#include "stowage/lm/generate.h"

#include <algorithm>
#include <cmath>

#include "stowage/api/jit.h"
#include "stowage/api/math.h"
#include "stowage/api/shaping.h"
#include "stowage/lm/adapter.h"
#include "stowage/lm/fit.h"

namespace stow::lm {
namespace {

constexpr int64_t kMostRows = 8;
constexpr int64_t kVocabBlock = 4096;  // words of a block of the head
constexpr int64_t kCacheUnit = 32;  // places of a cache come in multiples of it

using nn::DecoderConfig;
using nn::KvCache;

struct Prefilled {
  KvCache cache;
  Array last;  // [B, d]
};
STOW_TREE(Prefilled, cache, last);
struct Decoded {
  KvCache cache;
  Array logits;  // [B, V]
};
STOW_TREE(Decoded, cache, logits);

// Types of what all programs take first.
struct Types {
  const WeightOptions& options;
  nn::Decoder weights;
  std::optional<nn::Lora> adapter;
};

Array abstract_i32(Shape shape) { return Array::abstract(std::move(shape), DType::kI32); }

Graph prefill_graph(const DecoderConfig& config, const Types& types, const GenerateShape& shape) {
  const int64_t b = shape.rows, c = shape.chunk, d = config.dim;
  const auto prefill = [&](const nn::Decoder& w, const std::optional<nn::Lora>& adapter,
                           const Prefilled& state, const Array& tokens, const Array& at,
                           const Array& lengths) {
    nn::ForwardOptions options = with_adapter(adapter, types.options);
    options.cache = state.cache;
    options.write_at = broadcast_to(at.reshape({1}), {b});
    const nn::ForwardResult made = nn::forward_layers(config, w, tokens, options);
    const Array place = lengths - 1 - at;  // of the last token in this chunk, if it is there
    const Array picked =
        take_along_axis(made.hidden,
                        broadcast_to(clip(place, 0, c - 1).reshape({b, 1, 1}), {b, 1, d}), 1,
                        IndexMode::kClip)
            .reshape({b, d});
    const Array is_here = logical_and(place >= 0, place < c).reshape({b, 1});
    return Prefilled{*made.cache, where(is_here, picked, state.last)};
  };
  const Prefilled state{nn::kv_cache_abstract(config, b, shape.cache),
                        Array::abstract(Shape{b, d}, config.compute)};
  return jit(prefill)
      .lower(types.weights, types.adapter, state, abstract_i32({b, c}), abstract_i32({}),
             abstract_i32({b}))
      .graph();
}

Graph head_graph(const DecoderConfig& config, const Types& types, const GenerateShape& shape) {
  return jit([&](const nn::Decoder& w, const std::optional<nn::Lora>& adapter, const Array& last) {
           return nn::decoder_logits(config, w, last, DType::kF32,
                                     with_adapter(adapter, types.options));
         })
      .lower(types.weights, types.adapter,
             Array::abstract(Shape{shape.rows, config.dim}, config.compute))
      .graph();
}

Graph decode_graph(const DecoderConfig& config, const Types& types, const GenerateShape& shape) {
  const int64_t b = shape.rows;
  const auto decode = [&](const nn::Decoder& w, const std::optional<nn::Lora>& adapter,
                          const KvCache& cache, const Array& tokens, const Array& at) {
    const nn::ForwardOptions plain = with_adapter(adapter, types.options);
    nn::ForwardOptions options = plain;
    options.cache = cache;
    options.write_at = at;
    const nn::ForwardResult made = nn::forward_layers(config, w, tokens, options);
    const Array hidden = made.hidden.reshape({b, config.dim});
    return Decoded{*made.cache, nn::decoder_logits(config, w, hidden, DType::kF32, plain)};
  };
  return jit(decode)
      .lower(types.weights, types.adapter, nn::kv_cache_abstract(config, b, shape.cache),
             abstract_i32({b, 1}), abstract_i32({b}))
      .graph();
}

// A program with so many arguments donated behind the weights.
ExecutablePtr compile_with(const Graph& graph, size_t n_weights, size_t n_donated,
                           const Device::Capacities& capacities, const char* name, int threads) {
  CompileOptions options;
  options.capacities = capacities;
  options.dump_name = name;
  if (n_donated > 0) {
    options.donated.assign(graph.inputs().size(), false);
    std::fill_n(options.donated.begin() + static_cast<std::ptrdiff_t>(n_weights), n_donated, true);
  }
  return compile(graph, options, threads);
}

// One prompt under way.
class Row {
 public:
  Row(size_t prompt, const std::vector<int32_t>& ids, const ModelFiles& files,
      const GenerateOptions& options, const OnText& on_text)
      : prompt_(prompt), place_(static_cast<int64_t>(ids.size())), files_(files), options_(options),
        on_text_(on_text) {
    if (files.text)
      decoder_.emplace(files.text->tokenizer, text::DecodeOptions{.skip_special_tokens = true});
  }

  bool is_done() const { return done_; }
  int64_t place() const { return place_; }  // of the last token, in the cache
  int32_t token() const { return made_.ids.back(); }

  // Takes the token that logits [V] give.
  Result<void> step(std::span<const float> logits) {
    const float top = *std::max_element(logits.begin(), logits.end());
    if (!std::isfinite(top) ||
        std::any_of(logits.begin(), logits.end(), [](float x) { return std::isnan(x); }))
      return fail("prompt {}: the model's logits are not finite at token {}", prompt_, place_);
    const double uniform = uniform_of(options_.seed, prompt_, made_.ids.size());
    const int32_t id = sample(logits, options_.sampling, uniform);
    if (!made_.ids.empty()) ++place_;
    made_.ids.push_back(id);
    made_.logprobs.push_back(static_cast<float>(log_probability(logits, id)));
    const std::vector<int64_t>& ends = files_.eos_token_ids();
    if (std::find(ends.begin(), ends.end(), id) != ends.end()) {
      made_.finish = FinishReason::kStop;
      done_ = true;
    } else if (static_cast<int64_t>(made_.ids.size()) >= options_.max_tokens) {
      done_ = true;
    }
    if (decoder_) {
      append(decoder_->push(id));
      if (done_ && !stopped_) append(decoder_->finish());
      show(done_);
    }
    return {};
  }

  Generated take() { return std::move(made_); }

 private:
  void append(const std::string& piece) {
    if (stopped_) return;
    size_t from = made_.text.size();
    made_.text += piece;
    size_t longest = 0, first = std::string::npos;
    for (const std::string& stop : options_.stop) longest = std::max(longest, stop.size());
    from -= std::min(from, longest);
    for (const std::string& stop : options_.stop)
      if (!stop.empty()) first = std::min(first, made_.text.find(stop, from));
    if (first == std::string::npos) return;
    made_.text.resize(first);
    made_.finish = FinishReason::kStop;
    stopped_ = done_ = true;
  }

  // Shows the text that no stop text can take back.
  void show(bool all) {
    size_t certain = made_.text.size();
    for (const std::string& stop : options_.stop)
      for (size_t n = std::min(stop.size(), made_.text.size()); !all && n > 0; --n)
        if (made_.text.compare(made_.text.size() - n, n, stop, 0, n) == 0) {
          certain = std::min(certain, made_.text.size() - n);
          break;
        }
    if (certain <= shown_) return;
    if (on_text_) on_text_(prompt_, made_.text.substr(shown_, certain - shown_));
    shown_ = certain;
  }

  size_t prompt_;
  int64_t place_;
  const ModelFiles& files_;
  const GenerateOptions& options_;
  const OnText& on_text_;
  std::optional<text::StreamDecoder> decoder_;
  Generated made_;
  bool done_ = false, stopped_ = false;
  size_t shown_ = 0;
};

}  // namespace

GeneratePrograms::GeneratePrograms(const HfConfig& config, const WeightOptions& weights,
                                   const GenerateShape& shape, const Device::Capacities& capacities,
                                   int threads)
    : weights_(weights), shape_(shape) {
  DecoderConfig decoder = decoder_config(config, compute_dtype(config, weights));
  decoder.vocab_block = shape.vocab_block;
  const Types types{weights, abstract_weights(config, weights), abstract_adapter(config, weights)};
  const size_t n = tree_leaves(types.weights).size() + tree_leaves(types.adapter).size();
  prefill_ =
      compile_with(prefill_graph(decoder, types, shape), n, 3, capacities, "prefill", threads);
  head_ = compile_with(head_graph(decoder, types, shape), n, 0, capacities, "head", threads);
  decode_ = compile_with(decode_graph(decoder, types, shape), n, 2, capacities, "decode", threads);
  for (const Array& leaf : tree_leaves(nn::kv_cache_abstract(decoder, shape.rows, shape.cache)))
    cache_bytes_ += leaf.type().bytes();
  const auto weigh = [&](const char* name, const ExecutablePtr& program, int64_t beside) {
    GeneratePhase phase{name, {}};
    for (size_t kind = 0; kind < phase.peak_bytes.size(); ++kind)
      phase.peak_bytes[kind] = program->memory_analysis().kinds[kind].total_bytes;
    phase.peak_bytes[0] += beside;
    phases_.push_back(std::move(phase));
  };
  weigh("prefill", prefill_, 0);
  weigh("head", head_, cache_bytes_);
  weigh("decode", decode_, 0);
}

BytesByKind GeneratePrograms::peak_bytes() const {
  BytesByKind peak{};
  for (const GeneratePhase& phase : phases_)
    for (size_t kind = 0; kind < peak.size(); ++kind)
      peak[kind] = std::max(peak[kind], phase.peak_bytes[kind]);
  return peak;
}

Decoding::Decoding(const Model& model, const GeneratePrograms& programs)
    : model_(model), programs_(programs) {
  for (int i = 0; i < 2; ++i)
    cache_.push_back(model.device()->allocate(programs.cache_bytes() / 2));
}

std::vector<DeviceBufferPtr> Decoding::with_weights(std::vector<DeviceBufferPtr> more) const {
  std::vector<DeviceBufferPtr> arguments = model_.arguments();
  arguments.insert(arguments.end(), std::make_move_iterator(more.begin()),
                   std::make_move_iterator(more.end()));
  return arguments;
}

DeviceBufferPtr Decoding::put(std::span<const int32_t> values) const {
  DeviceBufferPtr buffer =
      model_.device()->allocate_unfilled(static_cast<int64_t>(values.size_bytes()));
  buffer->write(0, std::as_bytes(values));
  return buffer;
}

std::vector<float> Decoding::prefill(const std::vector<std::vector<int32_t>>& prompts) {
  Device& device = *model_.device();
  const auto rows = static_cast<size_t>(programs_.shape().rows);
  const auto chunk = static_cast<size_t>(programs_.shape().chunk);
  std::vector<int32_t> lengths(rows, 1);
  size_t longest = 1;
  for (size_t i = 0; i < prompts.size(); ++i) {
    lengths[i] = static_cast<int32_t>(prompts[i].size());
    longest = std::max(longest, prompts[i].size());
  }
  device.drop_arenas();
  DeviceBufferPtr last = device.allocate(static_cast<int64_t>(rows) * model_.decoder().dim *
                                         dtype_bytes(model_.decoder().compute));
  for (size_t at = 0; at < longest; at += chunk) {
    std::vector<int32_t> tokens(rows * chunk, 0);
    for (size_t i = 0; i < prompts.size(); ++i)
      for (size_t j = at; j < std::min(at + chunk, prompts[i].size()); ++j)
        tokens[i * chunk + (j - at)] = prompts[i][j];
    const auto place = static_cast<int32_t>(at);
    std::vector<DeviceBufferPtr> arguments =
        with_weights({std::move(cache_[0]), std::move(cache_[1]), std::move(last), put(tokens),
                      put(std::span(&place, 1)), put(lengths)});
    std::vector<DeviceBufferPtr> results = programs_.prefill()->run(device, arguments);
    cache_ = {std::move(results[0]), std::move(results[1])};
    last = std::move(results[2]);
  }
  device.drop_arenas();
  const std::vector<DeviceBufferPtr> arguments = with_weights({std::move(last)});
  std::vector<float> logits = read_floats(*programs_.head()->run(device, arguments)[0]);
  device.drop_arenas();
  return logits;
}

std::vector<float> Decoding::decode(std::span<const int32_t> tokens,
                                    std::span<const int32_t> places) {
  const std::vector<DeviceBufferPtr> arguments = with_weights(
      {std::move(cache_[0]), std::move(cache_[1]), put(tokens), put(places)});
  std::vector<DeviceBufferPtr> results = programs_.decode()->run(*model_.device(), arguments);
  cache_ = {std::move(results[0]), std::move(results[1])};
  return read_floats(*results[2]);
}

GeneratePrograms plan_generate(const HfConfig& config, const std::vector<int64_t>& lengths,
                               const GenerateOptions& options) {
  const int64_t limit = memory_limit(options.memory_bytes);
  const std::vector<MemoryKind> places = weight_places(options.weights);
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  const auto n = static_cast<int64_t>(lengths.size());
  const int64_t most = std::min(n, options.rows > 0 ? options.rows : kMostRows);
  FirstFit<GeneratePrograms> search(limit);
  for (const MemoryKind place : places) {
    const WeightOptions weights{options.dtype, place, options.adapter, options.compute};
    if (weight_bytes(config, weights)[0] > limit && place != places.back()) continue;
    // A head that is moved anyway may come block by block.
    std::vector<int64_t> blocks = {0};
    if (place != MemoryKind::kDevice && config.vocab_size > kVocabBlock)
      blocks.push_back(kVocabBlock);
    for (int64_t rows = most; rows >= 1; rows = options.rows > 0 ? 0 : rows / 2) {
      int64_t before = 0;
      for (const int64_t most_chunk : {256, 64, 16}) {
        const int64_t chunk = std::min<int64_t>(most_chunk, align_up(longest, 16));
        if (chunk == before) continue;
        before = chunk;
        const int64_t filled = (longest + chunk - 1) / chunk * chunk;
        const int64_t cache =
            align_up(std::max(filled, longest + options.max_tokens), kCacheUnit);
        for (const int64_t block : blocks)
          if (auto fits = search.plan(place, [&](const Device::Capacities& capacities) {
                return GeneratePrograms(config, weights, {rows, chunk, cache, block}, capacities,
                                        options.threads);
              }))
            return *fits;
      }
    }
  }
  search.refuse(fmt::format("generating {} tokens behind prompts of up to {}", options.max_tokens,
                            longest));
}

Result<void> check_prompts(const ModelFiles& files,
                           const std::vector<std::vector<int32_t>>& prompts,
                           const GenerateOptions& options) {
  if (!options.stop.empty() && !files.text)
    return fail("a stop text needs a tokenizer; {}", files.no_text);
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto n = static_cast<int64_t>(prompts[i].size());
    if (n == 0) return fail("prompt {}: expected at least one token, got none", i);
    for (const int32_t id : prompts[i])
      if (id < 0 || id >= files.config.vocab_size)
        return fail("prompt {}: id {} is outside of the model's vocabulary of {}", i, id,
                    files.config.vocab_size);
    const int64_t most = files.config.max_position_embeddings;
    if (most > 0 && n + options.max_tokens > most)
      return fail(
          "prompt {}: {} tokens and {} new ones are more than the {} positions of the model", i, n,
          options.max_tokens, most);
  }
  return {};
}

Result<std::vector<Generated>> generate(const Model& model, const GeneratePrograms& programs,
                                        const std::vector<std::vector<int32_t>>& prompts,
                                        const GenerateOptions& options, const OnText& on_text) {
  if (Result<void> good = check_prompts(model.files(), prompts, options); !good)
    return good.failure();
  std::vector<Generated> made;
  const auto rows = static_cast<size_t>(programs.shape().rows);
  const auto vocab = static_cast<size_t>(model.decoder().vocab);
  for (size_t begin = 0; begin < prompts.size(); begin += rows) {
    const size_t n = std::min(rows, prompts.size() - begin);
    const std::vector<std::vector<int32_t>> batch(
        prompts.begin() + static_cast<std::ptrdiff_t>(begin),
        prompts.begin() + static_cast<std::ptrdiff_t>(begin + n));
    std::vector<Row> under_way;
    for (size_t i = 0; i < n; ++i)
      under_way.emplace_back(begin + i, batch[i], model.files(), options, on_text);
    Decoding decoding(model, programs);
    std::vector<float> logits = decoding.prefill(batch);
    std::vector<int32_t> tokens(rows, 0), places(rows, 0);
    while (true) {
      bool all_done = true;
      for (size_t i = 0; i < n; ++i) {
        Row& row = under_way[i];
        if (row.is_done()) continue;
        if (Result<void> stepped = row.step(std::span(logits).subspan(i * vocab, vocab)); !stepped)
          return stepped.failure();
        tokens[i] = row.token();
        places[i] = static_cast<int32_t>(row.place());
        all_done = all_done && row.is_done();
      }
      if (all_done) break;
      logits = decoding.decode(tokens, places);
    }
    for (Row& row : under_way) made.push_back(row.take());
  }
  return made;
}

Result<std::vector<Generated>> generate(const Model& model,
                                        const std::vector<std::vector<int32_t>>& prompts,
                                        const GenerateOptions& options, const OnText& on_text) {
  if (prompts.empty()) return std::vector<Generated>();
  if (Result<void> good = check_prompts(model.files(), prompts, options); !good)
    return good.failure();
  GenerateOptions fixed = options;
  fixed.dtype = model.options().dtype;
  fixed.compute = model.options().compute;
  fixed.weights = model.options().memory;
  fixed.adapter = model.options().adapter;
  fixed.threads = model.device()->threads();
  if (!fixed.memory_bytes) fixed.memory_bytes = model.device()->capacity_bytes(MemoryKind::kDevice);
  std::vector<int64_t> lengths;
  for (const std::vector<int32_t>& prompt : prompts)
    lengths.push_back(static_cast<int64_t>(prompt.size()));
  return generate(model, plan_generate(model.config(), lengths, fixed), prompts, fixed, on_text);
}

}  // namespace stow::lm
