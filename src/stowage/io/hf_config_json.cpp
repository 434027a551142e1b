// HfConfig as the config.json that transformers reads.
#include <algorithm>

#include "stowage/base/error.h"
#include "stowage/io/hf_config.h"

namespace stow {
namespace {

std::string_view architecture_of(ModelFamily family) {
  switch (family) {
    case ModelFamily::kLlama:
      return "LlamaForCausalLM";
    case ModelFamily::kMistral:
      return "MistralForCausalLM";
    case ModelFamily::kQwen2:
      return "Qwen2ForCausalLM";
    case ModelFamily::kQwen3:
      return "Qwen3ForCausalLM";
  }
  STOW_CHECK(false);
}

Json number_or_null(const std::optional<int64_t>& value) {
  return value ? Json(*value) : Json();
}

Json rope_json(const RopeConfig& rope) {
  Json json = Json::object({{"rope_type", rope_name(rope.kind)}, {"rope_theta", rope.theta}});
  if (rope.kind == RopeKind::kDefault) return json;
  json.set("factor", rope.factor);
  if (rope.kind == RopeKind::kLinear) return json;
  json.set("original_max_position_embeddings", rope.original_max_position_embeddings);
  if (rope.kind == RopeKind::kLlama3) {
    json.set("low_freq_factor", rope.low_freq_factor);
    json.set("high_freq_factor", rope.high_freq_factor);
    return json;
  }
  if (rope.attention_factor) json.set("attention_factor", *rope.attention_factor);
  if (rope.mscale) json.set("mscale", *rope.mscale);
  if (rope.mscale_all_dim) json.set("mscale_all_dim", *rope.mscale_all_dim);
  json.set("beta_fast", rope.beta_fast);
  json.set("beta_slow", rope.beta_slow);
  json.set("truncate", rope.truncate);
  return json;
}

// Writes sliding windows; read_windows in hf_config.cpp is the inverse.
void set_windows(Json& json, const HfConfig& c) {
  if (c.family == ModelFamily::kLlama) return;
  const auto windowed = std::find_if(c.sliding_windows.begin(), c.sliding_windows.end(),
                                     [](int64_t w) { return w != 0; });
  const bool uses = windowed != c.sliding_windows.end();
  json.set("sliding_window", uses ? Json(*windowed) : Json());
  if (c.family == ModelFamily::kMistral) return;
  json.set("use_sliding_window", uses);
  Json types = Json::array();
  for (const int64_t window : c.sliding_windows)
    types.push_back(window != 0 ? "sliding_attention" : "full_attention");
  json.set("layer_types", std::move(types));
}

}  // namespace

Json HfConfig::to_json() const {
  Json json = Json::object({
      {"architectures", Json(Json::Array{Json(architecture_of(family))})},
      {"model_type", family_name(family)},
      {"vocab_size", vocab_size},
      {"hidden_size", hidden_size},
      {"intermediate_size", intermediate_size},
      {"num_hidden_layers", num_hidden_layers},
      {"num_attention_heads", num_attention_heads},
      {"num_key_value_heads", num_key_value_heads},
      {"head_dim", head_dim},
      {"hidden_act", "silu"},
      {"rms_norm_eps", rms_norm_eps},
      {"max_position_embeddings", max_position_embeddings},
      {"tie_word_embeddings", tie_word_embeddings},
      {"rope_parameters", rope_json(rope)},
      {"bos_token_id", number_or_null(bos_token_id)},
      {"pad_token_id", number_or_null(pad_token_id)},
  });
  if (family == ModelFamily::kLlama || family == ModelFamily::kQwen3)
    json.set("attention_bias", attention_bias_o);
  if (family == ModelFamily::kLlama) json.set("mlp_bias", mlp_bias);
  set_windows(json, *this);
  Json eos;
  if (eos_token_ids.size() == 1) {
    eos = eos_token_ids[0];
  } else if (!eos_token_ids.empty()) {
    for (const int64_t id : eos_token_ids) eos.push_back(id);
  }
  json.set("eos_token_id", std::move(eos));
  if (dtype)
    json.set("dtype", *dtype == DType::kF32    ? "float32"
                      : *dtype == DType::kBF16 ? "bfloat16"
                                               : "float16");
  return json;
}

}  // namespace stow
