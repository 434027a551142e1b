// HfConfig: a decoder's configuration from a Hugging Face config.json, and generation_config.json.
// Not weights (weights.h) and not tokenizers. Model families that are not listed are refused.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/core/dtype.h"
#include "stowage/io/json.h"

namespace stow {

enum class ModelFamily : uint8_t { kLlama, kMistral, kQwen2, kQwen3 };

/// "llama", "mistral", "qwen2", "qwen3": `model_type` of config.json.
std::string_view family_name(ModelFamily family);

enum class RopeKind : uint8_t { kDefault, kLinear, kLlama3, kYarn };

/// "default", "linear", "llama3", "yarn": `rope_type` of config.json.
std::string_view rope_name(RopeKind kind);

/// Parameters of the rotary position embedding; see rope_frequencies in rope.h.
struct RopeConfig {
  RopeKind kind = RopeKind::kDefault;
  double theta = 10000.0;
  double factor = 1.0;                           ///< linear, llama3, yarn
  double low_freq_factor = 1.0;                  ///< llama3
  double high_freq_factor = 4.0;                 ///< llama3; greater than low_freq_factor
  int64_t original_max_position_embeddings = 0;  ///< llama3, yarn
  /// yarn: the factor of cos and sin. Absent: derived from mscale and mscale_all_dim, or from
  /// factor.
  std::optional<double> attention_factor;
  std::optional<double> mscale, mscale_all_dim;  ///< yarn
  double beta_fast = 32.0, beta_slow = 1.0;      ///< yarn
  bool truncate = true;                          ///< yarn
  /// Divisors of the frequencies, [head_dim / 2]: `rope_freqs.weight` of a GGUF file. Empty: none.
  std::vector<float> divisors;

  friend bool operator==(const RopeConfig&, const RopeConfig&) = default;
};

/// The configuration of a decoder. Reading checks that products of the sizes do not overflow, that
/// num_attention_heads is a multiple of num_key_value_heads, and that head_dim is even.
struct HfConfig {
  ModelFamily family = ModelFamily::kLlama;
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;  ///< 0 is legal
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;
  int64_t head_dim = 0;
  double rms_norm_eps = 1e-6;
  bool tie_word_embeddings = false;
  bool attention_bias_qkv = false;  ///< q_proj, k_proj and v_proj have biases
  bool attention_bias_o = false;    ///< o_proj has a bias
  bool mlp_bias = false;            ///< gate_proj, up_proj and down_proj have biases
  bool qk_norm = false;             ///< q_norm and k_norm [head_dim] before the rotary embedding
  int64_t max_position_embeddings = 0;
  /// Window of each layer, [num_hidden_layers]: query t sees the keys t - window < j <= t. 0: no
  /// window.
  std::vector<int64_t> sliding_windows;
  RopeConfig rope;
  std::optional<int64_t> bos_token_id, pad_token_id;
  std::vector<int64_t> eos_token_ids;  ///< Empty: none.
  std::optional<DType> dtype;          ///< f32, bf16 or f16; none if the file lacks the key.

  /// Reads config.json with the keys of transformers 4 and 5; absent keys have the defaults of
  /// transformers 5. Errors: "PATH: KEY: reason" for a missing or damaged file, wrong types,
  /// numbers out of range, and unsupported features: other architectures, rope types or
  /// activations, quantization, partial rotary embeddings.
  static Result<HfConfig> load(const std::string& path);
  /// Parses the text of a config.json; `path` is for errors.
  static Result<HfConfig> parse(std::string_view text, const std::string& path);
  /// Reads parsed JSON. `names`: other names of keys for errors, by key.
  static Result<HfConfig> from_json(const Json& json, const std::string& path,
                                    const std::map<std::string, std::string>& names = {});

  /// Returns the configuration with the keys of transformers 5. from_json of the result returns an
  /// equal HfConfig, except for `rope.divisors`, which have no key.
  Json to_json() const;

  friend bool operator==(const HfConfig&, const HfConfig&) = default;
};

/// The Hugging Face name and the shape of a model's tensor.
struct ModelTensor {
  std::string name;
  std::vector<int64_t> shape;
};

/// Returns the tensors of a model: the embedding, those of each layer, the last norm, and the head
/// unless it is tied. Matrices are [out, in].
std::vector<ModelTensor> model_tensors(const HfConfig& config);

/// Sampling parameters of a model; none for keys that the file lacks.
struct GenerationConfig {
  std::vector<int64_t> eos_token_ids;
  std::optional<int64_t> bos_token_id, pad_token_id;
  std::optional<bool> do_sample;
  std::optional<double> temperature, top_p;
  std::optional<int64_t> top_k;

  /// Reads generation_config.json. Errors: "PATH: KEY: reason".
  static Result<GenerationConfig> load(const std::string& path);
  /// Parses the text of a generation_config.json; `path` is for errors.
  static Result<GenerationConfig> parse(std::string_view text, const std::string& path);
};

}  // namespace stow
