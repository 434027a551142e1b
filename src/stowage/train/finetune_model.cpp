#include "stowage/train/finetune_model.h"

#include <algorithm>
#include <filesystem>
#include <sstream>

#include <fmt/format.h>

#include "stowage/api/math.h"
#include "stowage/api/memory.h"
#include "stowage/api/nn.h"
#include "stowage/api/random.h"
#include "stowage/api/reduce.h"
#include "stowage/api/shaping.h"
#include "stowage/core/sums.h"
#include "stowage/io/digest.h"
#include "stowage/io/files.h"
#include "stowage/lm/adapter.h"
#include "stowage/lm/model.h"
#include "stowage/train/data.h"
#include "stowage/train/dataset.h"
#include "stowage/train/dtypes.h"
#include "stowage/train/decoder_model.h"
#include "stowage/train/mesh.h"
#include "stowage/train/step.h"

namespace stow {
namespace {

// The files of a model, independent of the rest of the configuration.
struct Files {
  lm::ModelFiles model;
  std::optional<lm::AdapterFiles> adapter;  // of lora.init
};
using FilesPtr = std::shared_ptr<const Files>;

// Returns the adapter that the keys of `lora` request, in PEFT's terms.
PeftConfig peft_config(const TrainConfig::Lora& lora) {
  constexpr std::string_view kRegex = "regex:";
  PeftConfig peft;
  peft.r = lora.rank;
  peft.lora_alpha = lora.alpha > 0 ? lora.alpha : 2.0 * static_cast<double>(lora.rank);
  peft.lora_dropout = lora.dropout;
  peft.use_rslora = lora.rslora;
  if (lora.targets == "all-linear") {
    peft.is_all_linear = true;
  } else if (lora.targets.starts_with(kRegex)) {
    peft.target_modules.pattern = lora.targets.substr(kRegex.size());
  } else {
    std::istringstream stream(lora.targets);
    for (std::string name; std::getline(stream, name, ',');)
      peft.target_modules.names.push_back(name);
  }
  return peft;
}

bool has_file(const TrainConfig& config, const char* name) {
  return file_exists(fmt::format("{}/{}", config.data.path, name));
}
// True if a run has data to evaluate on.
bool holds_out(const TrainConfig& config) {
  return config.data.valid_fraction > 0 || !config.eval.data.empty() ||
         has_file(config, "valid.jsonl") || has_file(config, "test.jsonl");
}

// Batches of the lines of a JSONL file.
class ExampleBatches : public TrainData {
 public:
  ExampleBatches(Dataset data, const TrainConfig& config)
      : data_(std::move(data)),
        config_(config),
        lengths_(bucket_lengths(config.data.seq, config.data.length_buckets)) {}

  HostBatch train_batch(uint64_t seed, int64_t step) const override {
    const TokenUpdate update = data_.update(step);
    HostBatch batch;
    const int64_t length = update.microbatches[0].length;
    const auto at = std::find(lengths_.begin(), lengths_.end(), length);
    batch.shape = static_cast<size_t>(at - lengths_.begin());
    batch.tokens = update.n_tokens;
    for (const TokenBatch& microbatch : update.microbatches) append(microbatch, length, batch);
    if (config_.lora.dropout > 0) {
      std::vector<uint32_t> keys;
      for (size_t i = 0; i < update.microbatches.size(); ++i) {
        const uint64_t bits = mix_bits(seed, static_cast<uint64_t>(step), 0xd409 + i);
        keys.push_back(static_cast<uint32_t>(bits >> 32));
        keys.push_back(static_cast<uint32_t>(bits));
      }
      batch.arrays.push_back(bytes_of(keys));
    }
    return batch;
  }
  int64_t n_validation_batches() const override {
    return data_.n_batches(Dataset::HeldOut::kValidation);
  }
  HostBatch validation_batch(int64_t i) const override {
    return held_out_batch(data_.batch(Dataset::HeldOut::kValidation, i));
  }
  int64_t n_test_batches() const override { return data_.n_batches(Dataset::HeldOut::kTest); }
  HostBatch test_batch(int64_t i) const override {
    return held_out_batch(data_.batch(Dataset::HeldOut::kTest, i));
  }
  std::string digest() const override { return data_.digest(); }
  std::string describe() const override {
    std::string text = "data: " + describe(data_.counts(), config_.data.seq);
    if (const DatasetCounts* held = data_.counts(Dataset::HeldOut::kValidation))
      text += "\nvalidation: " + describe(*held, config_.eval_seq());
    if (const DatasetCounts* held = data_.counts(Dataset::HeldOut::kTest))
      text += "\ntest: " + describe(*held, config_.eval_seq());
    return text;
  }

 private:
  HostBatch held_out_batch(const TokenBatch& held) const {
    HostBatch batch;
    append(held, config_.eval_seq(), batch);
    batch.weight = static_cast<double>(held.n_targets);
    return batch;
  }
  static std::string describe(const DatasetCounts& c, int64_t seq) {
    std::string text = fmt::format("{} examples in {} rows, {} tokens, {} of them targets",
                                   c.examples, c.rows, c.tokens, c.targets);
    if (c.without_target > 0)
      text += fmt::format("; {} without a target dropped", c.without_target);
    if (c.dropped_long > 0) text += fmt::format("; {} longer than {} dropped", c.dropped_long, seq);
    if (c.cut > 0)
      text += fmt::format("; {} longer than {} cut, by {} tokens in all", c.cut, seq, c.cut_tokens);
    if (c.lost_turns > 0)
      text += fmt::format("; {} turns of assistants not found in the rendered text, so no targets",
                          c.lost_turns);
    return text;
  }

  // Appends the arrays of a batch, with rows padded to `length`.
  void append(const TokenBatch& from, int64_t length, HostBatch& to) const {
    auto add = [&, i = size_t{0}](const auto& values) mutable {
      auto rows = values;
      if (from.length < length) {
        rows.assign(static_cast<size_t>(from.rows * length), {});
        for (int64_t r = 0; r < from.rows; ++r)
          std::copy_n(values.begin() + r * from.length, from.length, rows.begin() + r * length);
      }
      if (to.arrays.size() == i) to.arrays.emplace_back();
      const std::vector<std::byte> bytes = bytes_of(rows);
      to.arrays[i].insert(to.arrays[i].end(), bytes.begin(), bytes.end());
      ++i;
    };
    add(from.tokens);
    add(from.targets);
    add(from.weights);
    if (!config_.data.pack) return;
    add(from.positions);
    add(from.lo);
    add(from.hi);
  }

  mutable Dataset data_;  // remembers the order of an epoch
  TrainConfig config_;
  std::vector<int64_t> lengths_;
};

// Reads weights and the initial adapter to the places where a run keeps them.
class FileWeights : public ModelWeights {
 public:
  FileWeights(FilesPtr files, NamedArrays parameters, NamedArrays frozen, bool has_adapter)
      : files_(std::move(files)),
        parameters_(std::move(parameters)),
        frozen_(std::move(frozen)),
        has_adapter_(has_adapter) {}

  Result<void> read_parameter(size_t i, const TensorSlice& slice, DeviceBuffer& buffer) override {
    const ArrayType& type = parameters_.arrays[i].type();
    if (!has_adapter_)
      return lm::read_weight_slice(*files_->model.weights, parameters_.names[i], type, slice,
                                   buffer);
    return lm::read_adapter_slice(*files_->adapter, files_->model.config, parameters_.names[i],
                                  type, slice, buffer);
  }
  Result<void> read_frozen(size_t i, const TensorSlice& slice, DeviceBuffer& buffer) override {
    const ArrayType& type = frozen_.arrays[i].type();
    if (i != n_digested_ || slice != whole_slice(type.shape.dims()))
      return lm::read_weight_slice(*files_->model.weights, frozen_.names[i], type, slice, buffer);
    ++n_digested_;
    return lm::read_weight(*files_->model.weights, frozen_.names[i], type, buffer, &digest_);
  }
  Result<std::string> digest() const override {
    if (n_digested_ == frozen_.arrays.size()) return digest_.hex();
    Digest digest;
    for (size_t i = 0; i < frozen_.arrays.size(); ++i)
      if (Result<void> read = lm::digest_weight(*files_->model.weights, frozen_.names[i],
                                                frozen_.arrays[i].type(), digest);
          !read)
        return read.failure();
    return digest.hex();
  }

 private:
  FilesPtr files_;
  NamedArrays parameters_, frozen_;
  bool has_adapter_;
  Digest digest_;
  size_t n_digested_ = 0;  // Frozen arrays that were read whole, in order.
};

class FinetuneModel : public TrainModel {
 public:
  FinetuneModel(FilesPtr files, const TrainConfig& config)
      : files_(std::move(files)),
        config_(config),
        dtypes_(dtype_policy(config.train.compute)),
        decoder_(lm::decoder_config(files_->model.config, dtypes_.compute)) {
    decoder_.loss_chunk = config.train.loss_chunk;
    if (!config.lora.is_used()) return;
    if (files_->adapter) {
      lora_ = files_->adapter->lora();
      peft_ = files_->adapter->peft;
    } else {
      peft_ = peft_config(config.lora);
      const Result<lm::PeftPlan> plan = lm::plan_targets(*peft_, files_->model.config);
      if (!plan) trace_error("lora: {}", plan.error());
      lora_ = plan->lora;
    }
    if (lora_->dropout > 0 && config.memory.feed_forward == "chunked")
      trace_error(
          "memory.feed_forward = chunked does not go with an adapter's dropout of {}: it is drawn "
          "for all tokens at once",
          lora_->dropout);
    has_head_ = lora_->head.rank > 0 || lora_->saved_head || (decoder_.tied && lora_->saved_embed);
  }

  NamedArrays parameters() const override {
    return lora_ ? in_dtype(named_arrays(nn::lora_abstract(decoder_, *lora_)), dtypes_.params)
                 : named_arrays(nn::decoder_abstract(decoder_, dtypes_.params));
  }
  NamedArrays frozen() const override {
    return lora_ ? named_arrays(nn::decoder_abstract(decoder_, frozen_dtype())) : NamedArrays();
  }
  std::vector<WeightAxis> axes_of(std::string_view path) const override {
    const std::vector<std::string> names = named_arrays(nn::decoder_abstract(decoder_)).names;
    const bool is_of_base = std::find(names.begin(), names.end(), path) != names.end();
    return is_of_base ? weight_axes(decoder_, path) : adapter_axes(path);
  }
  bool reaches_layers(std::string_view path) const override { return reaches_decoder_layers(path); }
  optim::Mask muon_matrices() const override { return decoder_matrices(); }
  bool reads_parameters() const override { return !lora_ || files_->adapter; }
  Result<std::unique_ptr<ModelWeights>> open_weights() const override {
    if (!files_->model.weights)
      return fail("{}: there are no weights: expected model.safetensors, its index or a GGUF file",
                  files_->model.path);
    return std::unique_ptr<ModelWeights>(std::make_unique<FileWeights>(
        files_, parameters(), frozen(), lora_.has_value()));
  }
  NamedArrays init(const Array& key) const override {
    return named_arrays(nn::lora_init(decoder_, *lora_, key));
  }

  size_t n_batch_shapes() const override { return lengths().size(); }
  NamedArrays batch(size_t shape) const override {
    NamedArrays batch = token_arrays(config_.data.batch, lengths()[shape]);
    if (dropout() > 0) batch.add("dropout_key", Array::abstract(Shape{2}, DType::kU32));
    return batch;
  }
  bool evaluates() const override { return holds_out(config_); }
  NamedArrays eval_batch() const override {
    return token_arrays(config_.eval_batch(), config_.eval_seq());
  }

  Array loss(const ModelArrays& weights, const NamedArrays& batch,
             const LossForm& form) const override {
    nn::DecoderConfig decoder = decoder_;
    decoder.batch_parts = config_.mesh.batch_parts();
    decoder.stream = stream_sharding(config_, batch.arrays[0].dim(1));
    if (form.nested) decoder.nested_blocks = {0};
    const bool drops = batch.names.back() == "dropout_key";
    if (form.chunked && !drops) decoder.ffn_chunk = kProductBlock;
    if (form.chunked_loss && decoder.loss_chunk == 0) decoder.loss_chunk = kProductBlock;
    const nn::Decoder base = tree_unflatten(nn::decoder_abstract(decoder_),
                                            (lora_ ? weights.frozen : weights.parameters).arrays);
    nn::ForwardOptions options;
    if (lora_) {
      // In the dtype of all products, not that of the weights.
      options.lora = tree_map(
          [&](const Array& a) {
            if (a.dtype() == decoder_.compute) return a;
            return device_put(a, MemoryKind::kDevice).astype(decoder_.compute);
          },
          tree_unflatten(nn::lora_abstract(decoder_, *lora_), weights.parameters.arrays));
      options.lora_config = &*lora_;
    }
    const Array &tokens = batch.arrays[0], &targets = batch.arrays[1], &counts = batch.arrays[2];
    if (config_.data.pack) {
      options.positions = batch.arrays[3];
      options.lo = batch.arrays[4];
      options.hi = batch.arrays[5];
    }
    if (drops) options.dropout_key = batch.arrays.back();
    const Array hidden = nn::forward_layers(decoder, base, tokens, options).hidden;
    return nn::decoder_weighted_loss(decoder, base, hidden, targets,
                                     counts / maximum(sum(counts), 1.0), options);
  }
  // Microbatches count by their numbers of targets: the update's loss is the sum over all targets,
  // divided by their number.
  Array shares(const NamedArrays& microbatches) const override {
    const Array counts = sum(microbatches.arrays[2], {1, 2});  // [K]
    return counts / maximum(sum(counts), 1.0);
  }

  std::string describe() const override {
    const std::string layers = fmt::format("{}: {} layers of {}", files_->model.path,
                                           decoder_.layers, decoder_.dim);
    return lora_ ? layers + ", a low-rank adapter over them" : layers;
  }
  std::string describe_batch() const override { return describe_sequences(config_); }
  ModelSizes sizes() const override {
    ModelSizes sizes;
    sizes.layers = decoder_.layers;
    sizes.width = decoder_.dim;
    // Dropout draws for all tokens at once, and chunks would round gradients of bf16 adapters once
    // per chunk.
    const bool is_bf16 = decoder_.compute == DType::kBF16 || dtypes_.params == DType::kBF16;
    sizes.ffn = dropout() > 0 || is_bf16 ? 0 : decoder_.ffn;
    sizes.vocab = decoder_.vocab;
    for (const Array& a : frozen().arrays) sizes.frozen_bytes += a.type().bytes();
    sizes.chunks_keep_bf16 = lora_ && !has_head_;
    return sizes;
  }
  std::vector<ModelChange> changes() const override {
    if (!lora_ && config_.train.compute == "f32")
      return {{"--set lora.rank=16", [](TrainConfig& c) { c.lora.rank = 16; }}};
    // A quantised file, which is read as f32, counts too.
    if (lora_ && frozen_dtype() == DType::kF32)
      return {{"--set model.dtype=bf16", [](TrainConfig& c) { c.model.dtype = "bf16"; }}};
    return {};
  }
  std::string loss_unit() const override { return "nats a target"; }
  ConfigText identity() const override {
    ConfigText text = {{"model.config", digest_of(files_->model.config.to_json().dump())}};
    if (peft_) text.emplace_back("lora.config", digest_of(peft_of_record().dump()));
    return text;
  }
  Json record() const override {
    std::error_code ignored;
    return Json::object({{"path", std::filesystem::absolute(files_->model.path, ignored).string()},
                         {"dtype", dtype_name(lora_ ? frozen_dtype() : dtypes_.params)},
                         {"config", files_->model.config.to_json()},
                         {"adapter", peft_ ? peft_of_record() : Json()}});
  }

  Result<std::unique_ptr<TrainData>> open_data() const override {
    if (config_.data.path.empty())
      return fail("model.path = {} needs data: set data.path to a JSONL file, or a folder with "
                  "train.jsonl", config_.model.path);
    DatasetOptions o;
    o.path = config_.data.path;
    o.seq = config_.data.seq;
    o.batch = config_.data.batch;
    o.accumulate = config_.data.accumulate;
    o.pack = config_.data.pack;
    o.mask_prompt = config_.data.mask_prompt;
    o.shuffle = config_.data.shuffle;
    o.length_buckets = config_.data.length_buckets;
    o.too_long = config_.data.too_long == "drop" ? TooLong::kDrop : TooLong::kCut;
    o.seed = static_cast<uint64_t>(config_.train.seed);
    o.valid_path = config_.eval.data;
    o.valid_fraction = config_.data.valid_fraction;
    o.eval_batch = config_.eval_batch();
    o.eval_seq = config_.eval_seq();
    const auto& text = files_->model.text;
    Result<Dataset> data = Dataset::open(o, text ? &*text : nullptr, decoder_.vocab);
    if (!data) {
      if (text || files_->model.no_text.empty()) return data.failure();
      return fail("{} ({})", data.error(), files_->model.no_text);
    }
    return std::unique_ptr<TrainData>(
        std::make_unique<ExampleBatches>(std::move(*data), config_));
  }

 private:
  // The record does not depend on the folder of the base.
  Json peft_of_record() const {
    PeftConfig peft = *peft_;
    peft.base_model_name_or_path.clear();
    return peft.to_json();
  }
  std::vector<int64_t> lengths() const {
    return bucket_lengths(config_.data.seq, config_.data.length_buckets);
  }
  // Returns the axes of an adapter's array. Only the axis of the layers has a name.
  std::vector<WeightAxis> adapter_axes(std::string_view path) const {
    const NamedArrays weights = parameters();
    const auto at = std::find(weights.names.begin(), weights.names.end(), path);
    if (at == weights.names.end()) return {};
    const Array& weight = weights.arrays[static_cast<size_t>(at - weights.names.begin())];
    std::vector<WeightAxis> axes(weight.shape().dims().size());
    if (path.starts_with("layers/") && !axes.empty()) axes[0].name = "layers";
    return axes;
  }
  double dropout() const { return lora_ ? lora_->dropout : 0; }
  DType frozen_dtype() const {
    if (config_.model.dtype == "auto") {
      // The dtype of the embedding, which all matrices share. config.json may name another one, or
      // none.
      const WeightInfo* stored = files_->model.weights
                                     ? files_->model.weights->find("model.embed_tokens.weight")
                                     : nullptr;
      return stored ? stored->dtype : files_->model.config.dtype.value_or(DType::kF32);
    }
    return *parse_dtype(config_.model.dtype);
  }
  NamedArrays token_arrays(int64_t rows, int64_t length) const {
    const Shape shape{rows, length};
    NamedArrays batch;
    batch.add("tokens", Array::abstract(shape, DType::kI32));
    batch.add("targets", Array::abstract(shape, DType::kI32));
    batch.add("weights", Array::abstract(shape, DType::kF32));
    if (config_.data.pack)
      for (const char* name : {"positions", "lo", "hi"})
        batch.add(name, Array::abstract(shape, DType::kI32));
    return batch;
  }

  FilesPtr files_;
  TrainConfig config_;
  DTypePolicy dtypes_;
  nn::DecoderConfig decoder_;
  std::optional<nn::LoraConfig> lora_;
  std::optional<PeftConfig> peft_;
  bool has_head_ = false;  // Whether the head is trained, or has an adapter.
};

}  // namespace

Result<ModelFactory> model_factory(TrainConfig& config) {
  if (!config.model.is_from_files()) return ModelFactory(decoder_model);
  auto files = std::make_shared<Files>();
  Result<lm::ModelFiles> model = lm::ModelFiles::open(config.model.path);
  if (!model) return fail("model.path: {}", model.error());
  files->model = std::move(*model);
  const HfConfig& hf = files->model.config;
  if (!config.lora.init.empty()) {
    Result<lm::AdapterFiles> adapter =
        lm::AdapterFiles::open(config.lora.init, hf, files->model.weights.get());
    if (!adapter) return fail("lora.init: {}", adapter.error());
    files->adapter = std::move(*adapter);
    config.lora.dropout = files->adapter->lora().dropout;
  } else if (config.lora.rank > 0) {
    const PeftConfig peft = peft_config(config.lora);
    const auto check = [&](const PeftConfig& asked) -> Result<void> {
      const Result<lm::PeftPlan> plan = lm::plan_targets(asked, hf);
      if (plan) return {};
      return fail("lora.targets = {}: {}", config.lora.targets, plan.error());
    };
    if (Result<void> good = check(peft); !good) return good.failure();
    // PEFT ignores a name that matches nothing if another name matches; here it is an error.
    for (const std::string& name : peft.target_modules.names) {
      PeftConfig one = peft;
      one.target_modules.names = {name};
      if (Result<void> good = check(one); !good) return good.failure();
    }
  }
  if (!holds_out(config) && !config.data.path.empty()) {
    const auto has_no_effect = [](std::string_view key, const auto& value) {
      return fail(
          "{} = {} has no effect: nothing is held out; set eval.data or data.valid_fraction", key,
          value);
    };
    for (const auto& [key, value] :
         {std::pair<const char*, int64_t>("eval.batch", config.eval.batch),
          {"eval.seq", config.eval.seq},
          {"eval.patience", config.eval.patience}})
      if (value > 0) return has_no_effect(key, value);
    if (config.eval.keep_best) return has_no_effect("eval.keep_best", true);
  }
  if (config.data.valid_fraction > 0 && has_file(config, "valid.jsonl"))
    return fail("data.valid_fraction = {} has no effect: {} has a valid.jsonl; leave it out",
                config.data.valid_fraction, config.data.path);
  TrainConfig::Model& m = config.model;
  m.dim = hf.hidden_size;
  m.layers = hf.num_hidden_layers;
  m.heads = hf.num_attention_heads;
  m.kv_heads = hf.num_key_value_heads;
  m.ffn = hf.intermediate_size;
  m.vocab = hf.vocab_size;
  m.tied = hf.tie_word_embeddings;
  if (Result<void> fits = check_model_sizes(config); !fits) return fits.failure();
  return ModelFactory([files](const TrainConfig& c) -> TrainModelPtr {
    return std::make_shared<const FinetuneModel>(files, c);
  });
}

}  // namespace stow
