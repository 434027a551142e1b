#include "stowage/train/decoder_model.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "stowage/api/shaping.h"
#include "stowage/core/sums.h"
#include "stowage/nn/decoder_axes.h"
#include "stowage/train/data.h"
#include "stowage/train/dtypes.h"
#include "stowage/train/mesh.h"

namespace stow {
namespace {

constexpr int64_t kEvalBatches = 8;

// Batches of the bytes of a file, whose last tenth is held out.
class ByteBatches : public TrainData {
 public:
  ByteBatches(ByteData data, const TrainConfig& config)
      : data_(std::move(data)), batch_(config.data.batch), accumulate_(config.data.accumulate),
        seq_(config.data.seq), vocab_(config.model.vocab) {}

  HostBatch train_batch(uint64_t seed, int64_t step) const override {
    return {{bytes_of(data_.train_batch(seed, step, batch_ * accumulate_))}};
  }
  int64_t n_validation_batches() const override {
    return std::clamp<int64_t>(data_.n_validation_windows() / batch_, 1, kEvalBatches);
  }
  // Validation batches are spread over the whole held-out part.
  HostBatch validation_batch(int64_t i) const override {
    const int64_t n = n_validation_batches();
    const int64_t first = n > 1 ? i * (data_.n_validation_windows() - batch_) / (n - 1) : 0;
    return {{bytes_of(data_.validation_batch(first, batch_))}};
  }
  std::string digest() const override { return data_.digest(); }

  // Returns text that continues held-out text, drawn at temperature 0.8 with the seed.
  std::string sample(const RunSample& run, uint64_t seed, int64_t n) const override {
    std::string text = data_.validation_text(std::min<int64_t>(seq_, 32));
    const size_t prompt = text.size();
    for (int64_t i = 0; i < n; ++i) {
      const std::string window =
          text.substr(text.size() - std::min(text.size(), static_cast<size_t>(seq_)));
      std::vector<int32_t> tokens;
      for (char c : window) tokens.push_back(static_cast<unsigned char>(c));
      tokens.resize(static_cast<size_t>(seq_), 0);
      const auto last = static_cast<int32_t>(window.size()) - 1;
      const std::optional<std::vector<float>> logits =
          run({{bytes_of(tokens), bytes_of(std::vector{last})}});
      if (!logits) break;
      text += draw(*logits, seed, i);
    }
    return text.substr(prompt);
  }

 private:
  char draw(const std::vector<float>& logits, uint64_t seed, int64_t position) const {
    const int64_t n = std::min<int64_t>(vocab_, 256);
    const float top = *std::max_element(logits.begin(), logits.begin() + n);
    std::vector<double> weights;
    double total = 0;
    for (int64_t i = 0; i < n; ++i) {
      weights.push_back(
          std::exp((static_cast<double>(logits[static_cast<size_t>(i)]) - top) / 0.8));
      total += weights.back();
    }
    const uint64_t bits = mix_bits(seed, 0x5a3b1e, static_cast<uint64_t>(position));
    double left = static_cast<double>(bits >> 11) * 0x1p-53 * total;
    for (int64_t i = 0; i < n; ++i)
      if ((left -= weights[static_cast<size_t>(i)]) < 0) return static_cast<char>(i);
    return static_cast<char>(n - 1);
  }

  ByteData data_;
  int64_t batch_, accumulate_, seq_, vocab_;
};

class DecoderModel : public TrainModel {
 public:
  explicit DecoderModel(const TrainConfig& config)
      : config_(config), decoder_(decoder_config(config)) {}

  NamedArrays parameters() const override {
    return named_arrays(
        nn::decoder_abstract(decoder_, dtype_policy(config_.train.compute).params));
  }
  std::vector<WeightAxis> axes_of(std::string_view path) const override {
    return weight_axes(decoder_, path);
  }
  bool reaches_layers(std::string_view path) const override { return reaches_decoder_layers(path); }
  optim::Mask muon_matrices() const override { return decoder_matrices(); }
  NamedArrays init(const Array& key) const override {
    return named_arrays(nn::decoder_init(decoder_, key));
  }
  NamedArrays batch(size_t) const override {
    NamedArrays batch;
    batch.add("tokens",
              Array::abstract(Shape{config_.data.batch, config_.data.seq + 1}, DType::kI32));
    return batch;
  }
  std::optional<HostBatch> random_batch(uint64_t seed) const override {
    const TrainConfig::Data& data = config_.data;
    std::vector<int32_t> tokens(
        static_cast<size_t>(data.accumulate * data.batch * (data.seq + 1)));
    for (size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = static_cast<int32_t>(mix_bits(seed, 0x70ce5, static_cast<uint64_t>(i)) %
                                       static_cast<uint64_t>(decoder_.vocab));
    return HostBatch{.arrays = {bytes_of(tokens)}};
  }
  Array loss(const ModelArrays& model, const NamedArrays& batch,
             const LossForm& form) const override {
    nn::DecoderConfig decoder = decoder_;
    decoder.batch_parts = config_.mesh.batch_parts();
    decoder.stream = stream_sharding(config_, config_.data.seq);
    if (form.nested) decoder.nested_blocks = {0};
    if (form.chunked) decoder.ffn_chunk = kProductBlock;
    if (form.chunked_loss && !config_.has_loss_in_parts()) decoder.loss_chunk = kProductBlock;
    return nn::decoder_loss(decoder, weights(model.parameters), batch.arrays[0]);
  }
  NamedArrays sample_inputs() const override {
    NamedArrays inputs;
    inputs.add("tokens", Array::abstract(Shape{1, config_.data.seq}, DType::kI32));
    inputs.add("position", Array::abstract(Shape{}, DType::kI32));
    return inputs;
  }
  Array sample(const ModelArrays& arrays, const NamedArrays& inputs) const override {
    nn::DecoderConfig decoder = decoder_;
    decoder.ffn_chunk = kProductBlock;
    const nn::Decoder model = weights(arrays.parameters);
    const Array hidden = nn::decoder_hidden(decoder, model, inputs.arrays[0]);  // [1, T, d]
    const Array last = take(hidden.reshape({config_.data.seq, decoder.dim}), inputs.arrays[1], 0,
                            IndexMode::kClip);
    return nn::decoder_logits(decoder, model, last).astype(DType::kF32);
  }
  std::string describe() const override {
    return fmt::format("{} layers of {}", decoder_.layers, decoder_.dim);
  }
  std::string describe_batch() const override { return describe_sequences(config_); }
  ModelSizes sizes() const override {
    return {.layers = decoder_.layers,
            .width = decoder_.dim,
            .ffn = decoder_.ffn,
            .vocab = decoder_.vocab,
            .has_vocab_blocks = true};
  }
  std::vector<ModelChange> changes() const override {
    if (config_.model.tied) return {};
    return {{"--set model.tied=true", [](TrainConfig& c) { c.model.tied = true; }}};
  }
  std::string loss_unit() const override { return "nats a byte"; }
  Result<std::unique_ptr<TrainData>> open_data() const override {
    Result<ByteData> data =
        ByteData::open(config_.data.path, config_.model.vocab, config_.data.seq);
    if (!data) return data.failure();
    return std::unique_ptr<TrainData>(std::make_unique<ByteBatches>(std::move(*data), config_));
  }

 private:
  nn::Decoder weights(const NamedArrays& parameters) const {
    return tree_unflatten(nn::decoder_abstract(decoder_), parameters.arrays);
  }

  TrainConfig config_;
  nn::DecoderConfig decoder_;
};

}  // namespace

nn::DecoderConfig decoder_config(const TrainConfig& config) {
  nn::DecoderConfig c;
  const auto& m = config.model;
  c.vocab = m.vocab;
  c.dim = m.dim;
  c.layers = m.layers;
  c.heads = m.heads;
  c.kv_heads = m.kv_heads;
  c.ffn = m.ffn;
  c.tied = m.tied;
  c.compute = dtype_policy(config.train.compute).compute;
  c.loss_chunk = config.train.loss_chunk;
  c.vocab_block = config.train.vocab_block;
  return c;
}

std::vector<WeightAxis> weight_axes(const nn::DecoderConfig& config, std::string_view path) {
  std::vector<WeightAxis> axes;
  for (const nn::ParameterAxis& axis : nn::decoder_axes(config, path))
    axes.push_back({axis.parts[0].name, axis.parts[0].size});
  return axes;
}

bool reaches_decoder_layers(std::string_view path) {
  return path == "embed" || path == "saved_embed" || path.starts_with("embed/") ||
         path.starts_with("layers/");
}

optim::Mask decoder_matrices() { return {"layers/w*"}; }

std::string describe_sequences(const TrainConfig& config) {
  return fmt::format("{} sequences of {} tokens", config.data.batch, config.data.seq);
}

std::optional<nn::StreamSharding> stream_sharding(const TrainConfig& config, int64_t tokens) {
  if (!config.mesh.sequence || tokens % config.mesh.model != 0) return {};
  nn::StreamSharding stream = {mesh_of(config), whole_sharding(3)};
  stream.sharding.axes[0] = batch_axes(stream.mesh);
  stream.sharding.axes[1].push_back(stream.mesh.axis("model"));
  return stream;
}

TrainModelPtr decoder_model(const TrainConfig& config) {
  return std::make_shared<const DecoderModel>(config);
}

}  // namespace stow
