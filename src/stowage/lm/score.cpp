#include "stowage/lm/score.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "stowage/api/jit.h"
#include "stowage/api/math.h"
#include "stowage/api/memory.h"
#include "stowage/api/nn.h"
#include "stowage/api/shaping.h"
#include "stowage/lm/fit.h"
#include "stowage/lm/adapter.h"

namespace stow::lm {
namespace {

constexpr int64_t kTokensOfCall = 4096;

struct Scored {
  Array logprobs;                       // [r, T-1]
  std::optional<Array> logits, hidden;  // [r, T, V], [L+1, r, T, d]
};
STOW_TREE(Scored, logprobs, logits, hidden);

// Rows of tokens on the device, i32: tokens [r, T]; start and lengths [r] where there is padding.
struct Batch {
  Array tokens;
  std::optional<Array> start, lengths;
};
STOW_TREE(Batch, tokens, start, lengths);

Batch abstract_batch(const ScoreShape& shape) {
  const auto of = [](Shape extents) { return Array::abstract(std::move(extents), DType::kI32); };
  Batch batch{of({shape.rows, shape.length}), {}, {}};
  if (shape.padded) {
    batch.start = of({shape.rows});
    batch.lengths = of({shape.rows});
  }
  return batch;
}

Scored score_batch(const nn::DecoderConfig& config, const ScoreShape& shape,
                   const nn::Decoder& weights, const nn::ForwardOptions& adapter,
                   const Batch& batch) {
  const int64_t b = shape.rows, t = shape.length;
  nn::ForwardOptions options = adapter;
  options.hidden_states = shape.hidden;
  const Array place = iota(Shape{b, t}, 1, DType::kI32);
  Array start, end;
  if (shape.padded) {
    start = broadcast_to(batch.start->reshape({b, 1}), {b, t});
    end = start + batch.lengths->reshape({b, 1});
    options.positions = maximum(place - start, 0);
    options.lo = start;
    options.hi = end;
  }
  const nn::ForwardResult made = nn::forward_layers(config, weights, batch.tokens, options);
  Scored scored;
  scored.hidden = made.hidden_states;
  if (scored.hidden) scored.hidden = scored.hidden->astype(DType::kF32);
  if (shape.logits)
    scored.logits = nn::decoder_logits(config, weights, made.hidden, DType::kF32, adapter);
  if (t < 2) {
    scored.logprobs = zeros({b, 0});
    return scored;
  }
  const Array targets = batch.tokens.slice(1, 1, t);
  scored.logprobs = scored.logits
                        ? -cross_entropy(scored.logits->slice(1, 0, t - 1), targets)
                        : nn::decoder_log_probs(config, weights, made.hidden.slice(1, 0, t - 1),
                                                targets, shape.chunk, adapter);
  if (shape.padded) {
    const Array here = place.slice(1, 0, t - 1);
    const Array is_real = logical_and(here >= start.slice(1, 0, t - 1),
                                      here + 1 < end.slice(1, 0, t - 1));
    scored.logprobs = where(is_real, scored.logprobs, 0.0);
  }
  return scored;
}

DeviceBufferPtr put(Device& device, std::span<const int32_t> values, int64_t n) {
  DeviceBufferPtr buffer = device.allocate(n * static_cast<int64_t>(sizeof(int32_t)));
  if (!values.empty()) buffer->write(0, std::as_bytes(values));
  return buffer;
}

}  // namespace

Result<void> TokenRows::check(int64_t vocab) const {
  if (n < 1 || length < 1)
    return fail("tokens: expected at least one row of one token, got [{}, {}]", n, length);
  if (static_cast<int64_t>(tokens.size()) != n * length)
    return fail("tokens: expected {} for [{}, {}], got {}", n * length, n, length, tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] < 0 || tokens[i] >= vocab)
      return fail("tokens: {} at row {}, place {} is outside of the vocabulary of {}", tokens[i],
                  static_cast<int64_t>(i) / length, static_cast<int64_t>(i) % length, vocab);
  if (start.size() != lengths.size() || (is_padded() && static_cast<int64_t>(start.size()) != n))
    return fail("start, lengths: expected {} numbers each, got {} and {}", n, start.size(),
                lengths.size());
  for (size_t i = 0; i < start.size(); ++i)
    if (start[i] < 0 || lengths[i] < 0 || int64_t{start[i]} + lengths[i] > length)
      return fail("start, lengths: row {} has its tokens from {} on, {} of them, in a row of {}", i,
                  start[i], lengths[i], length);
  return {};
}

ScoreProgram::ScoreProgram(const HfConfig& config, const WeightOptions& weights,
                           const ScoreShape& shape, const Device::Capacities& capacities,
                           int threads)
    : weights_(weights), shape_(shape) {
  const nn::DecoderConfig decoder = decoder_config(config, compute_dtype(config, weights));
  const Graph graph =
      jit([&](const nn::Decoder& w, const std::optional<nn::Lora>& adapter, const Batch& batch) {
        return score_batch(decoder, shape, w, with_adapter(adapter, weights), batch);
      })
          .lower(abstract_weights(config, weights), abstract_adapter(config, weights),
                 abstract_batch(shape))
          .graph();
  CompileOptions options;
  options.capacities = capacities;
  options.dump_name = "score";
  program_ = compile(graph, options, threads);
}

BytesByKind ScoreProgram::peak_bytes() const {
  BytesByKind peak{};
  for (size_t kind = 0; kind < peak.size(); ++kind) peak[kind] = analysis().kinds[kind].total_bytes;
  return peak;
}

ScoreProgram::Part ScoreProgram::run(const Model& model, const TokenRows& rows,
                                     int64_t begin) const {
  Device& device = *model.device();
  const auto first = static_cast<size_t>(begin);
  const auto n = static_cast<size_t>(std::min(shape_.rows, rows.n - begin));
  const auto length = static_cast<size_t>(rows.length);
  std::vector<DeviceBufferPtr> arguments = model.arguments();
  // Rows that are not there have token 0, and where rows are padded no real token.
  arguments.push_back(put(device, std::span(rows.tokens).subspan(first * length, n * length),
                          shape_.rows * shape_.length));
  if (shape_.padded) {
    arguments.push_back(put(device, std::span(rows.start).subspan(first, n), shape_.rows));
    arguments.push_back(put(device, std::span(rows.lengths).subspan(first, n), shape_.rows));
  }
  const std::vector<DeviceBufferPtr> results = program_->run(device, arguments);
  Part part;
  size_t next = 0;
  part.logprobs = read_floats(*results[next++]);
  if (shape_.logits) part.logits = read_floats(*results[next++]);
  if (shape_.hidden) part.hidden = read_floats(*results[next++]);
  return part;
}

ScoreProgram plan_score(const HfConfig& config, const TokenRows& rows,
                        const ScoreOptions& options) {
  const int64_t limit = memory_limit(options.memory_bytes);
  const std::vector<MemoryKind> places = weight_places(options.weights);
  int64_t most = std::clamp<int64_t>(kTokensOfCall / rows.length, 1, rows.n);
  if (options.rows > 0) most = std::min(options.rows, rows.n);
  FirstFit<ScoreProgram> search(limit);
  for (const MemoryKind place : places) {
    const WeightOptions weights{options.dtype, place, options.adapter, options.compute};
    // Planned nevertheless where nothing else would be, for the error.
    if (weight_bytes(config, weights)[0] > limit && place != places.back()) continue;
    for (int64_t n = most; n >= 1; n = options.rows > 0 ? 0 : n / 2) {
      for (const int64_t chunk : {int64_t{256}, int64_t{128}}) {
        const ScoreShape shape{n,    rows.length, rows.is_padded(), options.logits, options.hidden,
                               chunk};
        if (auto fits = search.plan(place, [&](const Device::Capacities& capacities) {
              return ScoreProgram(config, weights, shape, capacities, options.threads);
            }))
          return *fits;
        if (options.logits || rows.length <= 128) break;  // chunks play no part
      }
    }
  }
  search.refuse(fmt::format("scoring rows of {} tokens", rows.length));
}

double ScoreResult::mean_logprob() const {
  double sum = 0;
  for (const float x : logprobs) sum += x;
  return n_tokens > 0 ? sum / static_cast<double>(n_tokens) : 0;
}

ScoreResult score(const Model& model, const ScoreProgram& program, const TokenRows& rows) {
  const int64_t n = program.shape().rows, t = rows.length;
  ScoreResult result;
  result.logprobs.resize(static_cast<size_t>(rows.n * (t - 1)));
  const int64_t vocab = model.decoder().vocab, d = model.decoder().dim;
  const int64_t states = model.decoder().layers + 1;
  if (program.shape().logits) result.logits.resize(static_cast<size_t>(rows.n * t * vocab));
  if (program.shape().hidden) result.hidden.resize(static_cast<size_t>(states * rows.n * t * d));
  const auto copy = [](const std::vector<float>& from, int64_t at, int64_t count,
                       std::vector<float>& to, int64_t to_at) {
    std::copy_n(from.begin() + at, count, to.begin() + to_at);
  };
  model.device()->drop_arenas();
  for (int64_t begin = 0; begin < rows.n; begin += n) {
    const int64_t here = std::min(n, rows.n - begin);
    const ScoreProgram::Part part = program.run(model, rows, begin);
    copy(part.logprobs, 0, here * (t - 1), result.logprobs, begin * (t - 1));
    if (program.shape().logits)
      copy(part.logits, 0, here * t * vocab, result.logits, begin * t * vocab);
    if (program.shape().hidden)
      for (int64_t l = 0; l < states; ++l)
        copy(part.hidden, l * n * t * d, here * t * d, result.hidden, (l * rows.n + begin) * t * d);
  }
  for (int64_t i = 0; i < rows.n; ++i)
    result.n_tokens += std::max<int64_t>(
        0, (rows.is_padded() ? rows.lengths[static_cast<size_t>(i)] : t) - 1);
  return result;
}

ScoreResult score(const Model& model, const TokenRows& rows, const ScoreOptions& options) {
  if (const Result<void> good = rows.check(model.config().vocab_size); !good)
    throw TraceError("[score] " + good.error());
  ScoreOptions fixed = options;
  fixed.dtype = model.options().dtype;
  fixed.compute = model.options().compute;
  fixed.weights = model.options().memory;
  fixed.adapter = model.options().adapter;
  fixed.threads = model.device()->threads();
  if (!fixed.memory_bytes) fixed.memory_bytes = model.device()->capacity_bytes(MemoryKind::kDevice);
  return score(model, plan_score(model.config(), rows, fixed), rows);
}

DevicePtr device_for(MemoryKind weights, std::optional<int64_t> memory_bytes, int threads) {
  const int64_t bytes = memory_limit(memory_bytes);
  if (weights == MemoryKind::kPinnedHost)
    return Device::virtual_device({bytes, Device::unlimited_bytes(), Device::unlimited_bytes()},
                                  threads);
  return Device::cpu_with_capacity(bytes, threads);
}

}  // namespace stow::lm
