// Metadata of GGUF files as HfConfig.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "stowage/io/gguf_weights.h"
#include "stowage/io/json_fields.h"
#include "stowage/io/rope.h"

namespace stow {
namespace {

struct Architecture {
  std::string_view name;    // general.architecture
  std::string_view family;  // model_type of Hugging Face
};
constexpr Architecture kArchitectures[] = {
    {"llama", "llama"}, {"qwen2", "qwen2"}, {"qwen3", "qwen3"}};

// Makes the members of a config.json from the entries, and remembers which is which for errors.
class Translation {
 public:
  Translation(const Json& metadata, std::string prefix)
      : metadata_(metadata), prefix_(std::move(prefix)) {
    json_ = Json::object();
  }

  const Json* entry(std::string_view key) const {
    return metadata_.find(prefix_ + std::string(key));
  }
  std::string full_name(std::string_view key) const { return prefix_ + std::string(key); }

  // Copies an entry of the architecture; absent, `otherwise`.
  void copy(std::string_view hf, std::string_view key, Json otherwise = nullptr) {
    const Json* value = entry(key);
    set(hf, full_name(key), value ? *value : std::move(otherwise));
  }
  void set(std::string_view hf, std::string full_key, Json value) {
    names_[std::string(hf)] = std::move(full_key);
    const size_t dot = hf.find('.');
    if (dot == std::string_view::npos) {
      json_.set(hf, std::move(value));
    } else {
      Json inner = json_.find(hf.substr(0, dot)) ? *json_.find(hf.substr(0, dot)) : Json::object();
      inner.set(hf.substr(dot + 1), std::move(value));
      json_.set(hf.substr(0, dot), std::move(inner));
    }
  }

  const Json& json() const { return json_; }
  const std::map<std::string, std::string>& names() const { return names_; }

 private:
  const Json& metadata_;
  std::string prefix_;
  Json json_;
  std::map<std::string, std::string> names_;
};

// Entries that change what a model computes, in ways that are not supported, unless they have this
// value.
struct Unsupported {
  std::string_view key;
  double harmless;
};
constexpr Unsupported kUnsupported[] = {
    {"expert_count", 0},
    {"attention.sliding_window", 0},
    {"attention.scale", 0},
    {"attention.clamp_kqv", 0},
    {"attention.max_alibi_bias", 0},
    {"attn_logit_softcapping", 0},
    {"final_logit_softcapping", 0},
    {"logit_scale", 0},
    {"residual_scale", 0},
    {"embedding_scale", 0},
    {"rope.scaling.attn_factor", 1},
    {"rope.scaling.alpha", 0},
    {"rope.scaling.yarn_log_multiplier", 0},
    {"rope.scaling.yarn_ext_factor", 1},
    {"rope.scaling.yarn_attn_factor", 1},
};

Result<void> check_unsupported(const Translation& t) {
  for (const auto& [key, harmless] : kUnsupported) {
    const Json* value = t.entry(key);
    if (!value) continue;
    const Result<double> number = value->as_double();
    if (!number || *number != harmless)
      return fail("{}: {} is not supported", t.full_name(key), shown(*value));
  }
  if (const Json* causal = t.entry("attention.causal"); causal && *causal != Json(true))
    return fail("{}: {} is not supported", t.full_name("attention.causal"), shown(*causal));
  return {};
}

// The width of a head; rotations of a part of it and values of another width are not supported.
Result<void> translate_heads(Translation& t) {
  t.copy("num_attention_heads", "attention.head_count");
  t.copy("num_key_value_heads", "attention.head_count_kv");
  t.copy("head_dim", "attention.key_length");
  const Json* key = t.entry("attention.key_length");
  const Json* value = t.entry("attention.value_length");
  const Json* rotated = t.entry("rope.dimension_count");
  const auto width = [&]() -> Result<int64_t> {
    if (key) return key->as_int();
    const Json* hidden = t.entry("embedding_length");
    const Json* heads = t.entry("attention.head_count");
    if (!hidden || !heads) return fail("");
    const Result<int64_t> d = hidden->as_int(), h = heads->as_int();
    if (!d || !h || *h < 1) return fail("");
    return *d / *h;
  }();
  if (!width) return {};  // What is missing or wrong is found later.
  for (const auto& [name, entry] :
       {std::pair("attention.value_length", value), std::pair("rope.dimension_count", rotated)}) {
    if (!entry) continue;
    const Result<int64_t> n = entry->as_int();
    if (!n || *n != *width)
      return fail("{}: expected {}, the width of a head, got {}", t.full_name(name), *width,
                  shown(*entry));
  }
  return {};
}

Result<void> translate_rope(Translation& t) {
  t.copy("rope_parameters.rope_theta", "rope.freq_base", 10000.0);
  const Json* type = t.entry("rope.scaling.type");
  const bool none = !type || (type->as_string() && *type->as_string() == "none");
  t.set("rope_parameters.rope_type", t.full_name("rope.scaling.type"),
        none ? Json("default") : *type);
  const std::string_view factor = "rope.scaling.factor", old_factor = "rope.scale_linear";
  if (!type && t.entry(old_factor)) {
    t.set("rope_parameters.rope_type", t.full_name(old_factor), "linear");
    t.copy("rope_parameters.factor", old_factor);
    return {};
  }
  if (none) return {};
  if (*type != Json("linear") && *type != Json("yarn"))
    return fail("{}: {} is not supported; supported are none, linear, yarn",
                t.full_name("rope.scaling.type"), shown(*type));
  t.copy("rope_parameters.factor", factor);
  t.copy("rope_parameters.original_max_position_embeddings",
         "rope.scaling.original_context_length");
  t.copy("rope_parameters.beta_fast", "rope.scaling.yarn_beta_fast");
  t.copy("rope_parameters.beta_slow", "rope.scaling.yarn_beta_slow");
  return {};
}

// rope_freqs.weight, which divides the frequencies.
Result<std::vector<float>> read_divisors(const GgufFile& file, int64_t head_dim) {
  const GgufTensor* tensor = file.find("rope_freqs.weight");
  if (!tensor) return std::vector<float>();
  if (tensor->type != GgmlType::kF32 || tensor->shape != std::vector<int64_t>{head_dim / 2})
    return fail("tensor \"rope_freqs.weight\": expected F32[{}], got {}[{}]", head_dim / 2,
                ggml_name(tensor->type), fmt::join(tensor->shape, ","));
  std::vector<float> divisors(static_cast<size_t>(head_dim / 2));
  if (Result<void> read =
          file.read(tensor->offset_bytes, std::as_writable_bytes(std::span(divisors)));
      !read)
    return read.failure();
  for (const float divisor : divisors)
    if (!(std::isfinite(divisor) && divisor > 0.0f))
      return fail("tensor \"rope_freqs.weight\": expected positive numbers, got {}", divisor);
  return divisors;
}

// llama.cpp's converter writes the rope of type llama3 as divisors. Where they are those of the
// only parameters in use, these stand in their place, and the frequencies have the bits of the
// original. Source: convert_hf_to_gguf.py, LlamaModel.generate_extra_tensors; Llama 3.1 to 3.3.
void recognize_llama3(RopeConfig& rope, int64_t head_dim) {
  if (rope.kind != RopeKind::kDefault || rope.divisors.empty()) return;
  RopeConfig plain = rope, guess = rope;
  plain.divisors.clear();
  guess.divisors.clear();
  guess.kind = RopeKind::kLlama3;
  guess.factor = static_cast<double>(*std::max_element(rope.divisors.begin(), rope.divisors.end()));
  guess.low_freq_factor = 1.0;
  guess.high_freq_factor = 4.0;
  guess.original_max_position_embeddings = 8192;
  const std::vector<float> before = rope_frequencies(plain, head_dim).inv_freq;
  const std::vector<float> after = rope_frequencies(guess, head_dim).inv_freq;
  for (size_t i = 0; i < before.size(); ++i)
    if (std::abs(before[i] / after[i] - rope.divisors[i]) > 1e-5f * rope.divisors[i]) return;
  rope = guess;
}

// The dtype of the matrices if all have one of 16 bits; else f32.
DType stored_dtype(const GgufFile& file) {
  std::optional<DType> all;
  for (const GgufTensor& tensor : file.tensors()) {
    if (tensor.shape.size() < 2) continue;
    const DType one = tensor.type == GgmlType::kF16    ? DType::kF16
                      : tensor.type == GgmlType::kBF16 ? DType::kBF16
                                                       : DType::kF32;
    if (all && *all != one) return DType::kF32;
    all = one;
  }
  return all.value_or(DType::kF32);
}

Result<HfConfig> translate(const GgufFile& file) {
  const Json& metadata = file.metadata();
  const Json* name = metadata.find("general.architecture");
  if (!name || !name->as_string())
    return fail("general.architecture: expected a name, got {}", shown(name));
  const auto* architecture =
      std::find_if(std::begin(kArchitectures), std::end(kArchitectures),
                   [&](const Architecture& a) { return a.name == *name->as_string(); });
  if (architecture == std::end(kArchitectures))
    return fail("general.architecture: {} is not supported; supported are llama, qwen2, qwen3",
                shown(*name));
  if (const Json* type = metadata.find("general.type"); type && *type != Json("model"))
    return fail("general.type: expected \"model\", got {}", shown(*type));
  if (const Json* parts = metadata.find("split.count"); parts) {
    const Result<int64_t> n = parts->as_int();
    if (!n || *n > 1)
      return fail("split.count: a model in {} files is not supported", shown(*parts));
  }

  Translation t(metadata, std::string(architecture->name) + ".");
  if (Result<void> checked = check_unsupported(t); !checked) return checked.failure();
  t.set("model_type", "general.architecture", architecture->family);
  const GgufTensor* embedding = file.find("token_embd.weight");
  if (!embedding || embedding->shape.size() != 2)
    return fail("tensor \"token_embd.weight\": expected a matrix, got {}",
                embedding ? fmt::format("{}[{}]", ggml_name(embedding->type),
                                        fmt::join(embedding->shape, ","))
                          : "nothing");
  t.set("vocab_size", "tensor \"token_embd.weight\"", embedding->shape[0]);
  for (const std::string_view key :
       {"embedding_length", "feed_forward_length", "block_count", "attention.head_count",
        "context_length", "attention.layer_norm_rms_epsilon"})
    if (!t.entry(key)) return fail("{}: is missing", t.full_name(key));
  t.copy("hidden_size", "embedding_length");
  t.copy("intermediate_size", "feed_forward_length");
  t.copy("num_hidden_layers", "block_count");
  t.copy("max_position_embeddings", "context_length");
  t.copy("rms_norm_eps", "attention.layer_norm_rms_epsilon");
  if (Result<void> done = translate_heads(t); !done) return done.failure();
  if (Result<void> done = translate_rope(t); !done) return done.failure();
  t.set("tie_word_embeddings", "output.weight", file.find("output.weight") == nullptr);
  for (const auto& [hf, key] : {std::pair("bos_token_id", "tokenizer.ggml.bos_token_id"),
                                std::pair("eos_token_id", "tokenizer.ggml.eos_token_id"),
                                std::pair("pad_token_id", "tokenizer.ggml.padding_token_id")})
    t.set(hf, key, metadata.find(key) ? *metadata.find(key) : Json());

  Result<HfConfig> config = HfConfig::from_json(t.json(), file.path(), t.names());
  if (!config) return config;
  // The end of a turn, where that is another token, ends a text too.
  if (const Json* turn = metadata.find("tokenizer.ggml.eot_token_id")) {
    const Result<int64_t> id = turn->as_int();
    if (!id || *id < 0 || *id >= int64_t{1} << 31)
      return fail("tokenizer.ggml.eot_token_id: expected an id, got {}", shown(*turn));
    std::vector<int64_t>& ids = config->eos_token_ids;
    if (std::find(ids.begin(), ids.end(), *id) == ids.end()) ids.push_back(*id);
  }
  if (config->family == ModelFamily::kLlama || config->family == ModelFamily::kQwen3) {
    config->attention_bias_qkv = file.find("blk.0.attn_q.bias") != nullptr;
    config->attention_bias_o = file.find("blk.0.attn_output.bias") != nullptr;
  }
  if (config->family == ModelFamily::kLlama)
    config->mlp_bias = file.find("blk.0.ffn_gate.bias") != nullptr;
  Result<std::vector<float>> divisors = read_divisors(file, config->head_dim);
  if (!divisors) return divisors.failure();
  config->rope.divisors = std::move(*divisors);
  recognize_llama3(config->rope, config->head_dim);
  config->dtype = stored_dtype(file);
  return config;
}

}  // namespace

Result<HfConfig> gguf_config(const GgufFile& file) {
  Result<HfConfig> config = translate(file);
  if (config || config.error().starts_with(file.path() + ": ")) return config;
  return fail("{}: {}", file.path(), config.error());
}

}  // namespace stow
