#include "stowage/nn/lora_layers.h"

#include <cstring>

#include "stowage/api/linalg.h"
#include "stowage/api/math.h"
#include "stowage/api/memory.h"
#include "stowage/api/names.h"
#include "stowage/api/random.h"
#include "stowage/api/shaping.h"
#include "stowage/api/trace.h"

namespace stow::nn {
namespace {

// Numbers of the streams of dropout: layers take those from kLayerStream on.
constexpr int64_t kHeadStream = 0, kLayerStream = 1;

Array on_device(const Array& x) {
  return device_put(x, MemoryKind::kDevice);
}

}  // namespace

LayerAdapter::LayerAdapter(const std::optional<LoraInput>& own, const LoraConfig* config) {
  if (!own) return;
  own_ = *own;
  own_->factors = tree_map(on_device, own->factors);
  dropout_ = config->dropout;
}

LayerAdapter::LayerAdapter(const std::optional<SlotInput>& own, const Array& slot_of_row) {
  if (!own) return;
  slots_ = SlotInput{tree_map(on_device, own->factors), on_device(own->scales)};
  slot_of_row_ = slot_of_row;
}

Array LayerAdapter::add(const Array& y, const Array& x, LoraMatrix matrix) const {
  if (slots_) {
    const std::optional<LowRank>& factors = lora_matrix(slots_->factors, matrix);
    if (!factors) return y;
    const Array scales =
        slots_->scales.slice(1, matrix, matrix + 1).reshape({slots_->scales.dim(0)});
    return add_slots(y, x, *factors, scales, slot_of_row_);
  }
  if (!own_) return y;
  const std::optional<LowRank>& factors = lora_matrix(own_->factors, matrix);
  if (!factors) return y;
  LowRankOptions options{own_->scales.slice(0, matrix, matrix + 1).reshape({}), dropout_};
  if (own_->key) options.key = random::fold_in(*own_->key, static_cast<int64_t>(matrix));
  return add_low_rank(y, x, *factors, options);
}

void check_lora(const DecoderConfig& config, const ForwardOptions& options) {
  check_slots(config, options);
  if (!options.lora) return;
  if (!options.lora_config)
    trace_error_here("[decoder] expected the lora_config of the adapter, got none");
  if (config.ffn_chunk > 0 && options.lora_config->dropout > 0 && options.dropout_key)
    trace_error_here(
        "[decoder] an adapter with dropout and ffn_chunk do not go together; set one of them to 0");
  const std::vector<std::string> expected = tree_paths(lora_abstract(config, *options.lora_config));
  const std::vector<std::string> got = tree_paths(*options.lora);
  if (got != expected)
    trace_error_here("[decoder] expected the {} arrays that lora_config names, got {} or others",
                     expected.size(), got.size());
}

std::optional<LoraInput> lora_input(const DecoderConfig& config, const ForwardOptions& options) {
  if (!options.lora || tree_leaves(options.lora->layers).empty()) return std::nullopt;
  const auto n = static_cast<size_t>(config.layers);
  std::vector<float> scales(n * kNumLoraMatrices, 0.0f);
  for (size_t m = 0; m < kNumLoraMatrices; ++m) {
    const LoraTarget& target = options.lora_config->layers[m];
    for (size_t l = 0; l < n && target.rank > 0; ++l)
      scales[l * kNumLoraMatrices + m] = target.scales[l];
  }
  std::vector<std::byte> bytes(scales.size() * sizeof(float));
  std::memcpy(bytes.data(), scales.data(), bytes.size());
  LoraInput input{
      options.lora->layers,
      make_literal({DType::kF32, {config.layers, static_cast<int64_t>(kNumLoraMatrices)}},
                   std::move(bytes)),
      {}};
  if (options.dropout_key && options.lora_config->dropout > 0)
    input.key =
        random::split_array(random::fold_in(*options.dropout_key, kLayerStream), config.layers);
  return input;
}

Decoder with_saved_weights(const DecoderConfig& config, const Decoder& model,
                           const std::optional<Lora>& lora) {
  Decoder made = model;
  if (!lora) return made;
  if (lora->saved_head) {
    made.head = lora->saved_head;
  } else if (lora->saved_embed && !model.head) {
    made.head = config.out_in ? model.embed : swapaxes(model.embed, 0, 1);
  }
  if (lora->saved_embed) made.embed = *lora->saved_embed;
  if (lora->saved_norm) made.norm = *lora->saved_norm;
  return made;
}

Array add_embed_adapter(const Array& x, const Array& tokens, const ForwardOptions& options) {
  const LowRank& factors = *options.lora->embed;
  const Array columns = take(swapaxes(on_device(factors.a), 0, 1), tokens, 0, IndexMode::kClip);
  const Array z = columns * options.lora_config->embed.scales[0];  // [B, T, r]
  return (x + dot_general(z, on_device(factors.b), {z.rank() - 1}, {1})).astype(x.dtype());
}

LowRank head_factors(const ForwardOptions& options) {
  return tree_map(on_device, *options.lora->head);
}

LowRankOptions head_options(const ForwardOptions& options) {
  LowRankOptions made{options.lora_config->head.scales[0], options.lora_config->dropout};
  if (options.dropout_key) made.key = random::fold_in(*options.dropout_key, kHeadStream);
  return made;
}

}  // namespace stow::nn
