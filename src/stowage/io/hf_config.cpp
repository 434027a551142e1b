#include "stowage/io/hf_config.h"

#include <algorithm>
#include <array>

#include "stowage/io/files.h"
#include "stowage/io/json_fields.h"

namespace stow {
namespace {

constexpr int64_t kMaxFileBytes = int64_t{1} << 24;
constexpr JsonLimits kLimits = {.depth = 16, .n_values = 1 << 18};

// No model comes near these; within them no product of two sizes overflows.
constexpr int64_t kMaxVocab = int64_t{1} << 28;
constexpr int64_t kMaxWidth = int64_t{1} << 24;
constexpr int64_t kMaxHeads = int64_t{1} << 16;
constexpr int64_t kMaxLayers = int64_t{1} << 14;
constexpr int64_t kMaxPositions = int64_t{1} << 40;
constexpr int64_t kMaxElements = int64_t{1} << 56;
constexpr int64_t kMaxId = (int64_t{1} << 31) - 1;
constexpr double kMinFactor = 1e-6, kMaxFactor = 1e9;

// A family's names and the defaults of its configuration class. Source: transformers 5,
// models/*/configuration_*.py.
struct FamilyDefaults {
  ModelFamily family;
  std::string_view architecture, model_type;
  int64_t vocab_size, intermediate_size;
  int64_t num_key_value_heads;  // 0: num_attention_heads
  int64_t head_dim;             // 0: hidden_size / num_attention_heads
  int64_t max_position_embeddings;
  std::optional<int64_t> bos, eos;
};

constexpr std::array<FamilyDefaults, 4> kFamilies = {{
    {ModelFamily::kLlama, "LlamaForCausalLM", "llama", 32000, 11008, 0, 0, 2048, 1, 2},
    {ModelFamily::kMistral, "MistralForCausalLM", "mistral", 32000, 14336, 8, 0, 131072, 1, 2},
    {ModelFamily::kQwen2, "Qwen2ForCausalLM", "qwen2", 151936, 22016, 32, 0, 32768, {}, {}},
    {ModelFamily::kQwen3, "Qwen3ForCausalLM", "qwen3", 151936, 22016, 32, 128, 32768, {}, {}},
}};

const FamilyDefaults& defaults_of(ModelFamily family) {
  return kFamilies[static_cast<size_t>(family)];
}

constexpr std::array<std::string_view, 4> kRopeNames = {"default", "linear", "llama3", "yarn"};

std::string supported_architectures() {
  std::string names;
  for (const FamilyDefaults& f : kFamilies)
    names += (names.empty() ? "" : ", ") + std::string(f.architecture);
  return names;
}

const FamilyDefaults* read_family(JsonFields& fields, const Json& json) {
  const auto unsupported = [&](std::string_view key, const Json& got) {
    fields.refuse(key, fmt::format("{} is not supported; supported are {}", shown(got),
                                   supported_architectures()));
    return nullptr;
  };
  const FamilyDefaults* family = nullptr;
  if (const Json* list = fields.find("architectures")) {
    const Json::Array* names = list->as_array();
    if (!names || names->empty() || !(*names)[0].as_string()) {
      fields.refuse("architectures", "expected an array of names, got " + shown(*list));
      return nullptr;
    }
    for (const FamilyDefaults& f : kFamilies)
      if (f.architecture == *(*names)[0].as_string()) family = &f;
    if (!family) return unsupported("architectures", (*names)[0]);
  }
  const std::optional<std::string> type = fields.text("model_type");
  if (!type) {
    if (!family && !fields.failed())
      fields.refuse("architectures", "is missing, and so is model_type");
    return family;
  }
  if (!family)
    for (const FamilyDefaults& f : kFamilies)
      if (f.model_type == *type) family = &f;
  if (!family) return unsupported("model_type", *json.find("model_type"));
  if (family->model_type != *type)
    fields.refuse("model_type",
                  fmt::format("expected \"{}\" as architectures has {}, got {}", family->model_type,
                              family->architecture, shown(*json.find("model_type"))));
  return family;
}

// Parameters of `kind` from the object that has them, rope_scaling or rope_parameters.
void read_scaling(JsonFields& fields, JsonFields& top, RopeConfig& rope, int64_t max_positions) {
  const auto require = [&](std::string_view key) {
    if (!fields.find(key))
      fields.refuse(key, fmt::format("is missing for rope_type \"{}\"", rope_name(rope.kind)));
  };
  if (rope.kind == RopeKind::kDefault) return;
  if (rope.kind == RopeKind::kLlama3 || rope.kind == RopeKind::kYarn) {
    const int64_t inner =
        fields.integer("original_max_position_embeddings", 1, kMaxPositions, max_positions);
    rope.original_max_position_embeddings =
        top.integer("original_max_position_embeddings", 1, kMaxPositions, inner);
  }
  // Only yarn has a default, the ratio of the lengths.
  if (rope.kind != RopeKind::kYarn) require("factor");
  const double ratio = rope.kind == RopeKind::kYarn
                           ? static_cast<double>(max_positions) /
                                 static_cast<double>(rope.original_max_position_embeddings)
                           : 1.0;
  rope.factor = fields.number("factor", kMinFactor, kMaxFactor, ratio);
  if (rope.factor < kMinFactor || rope.factor > kMaxFactor)
    fields.refuse("factor", fmt::format("the ratio of the lengths {} and {} is out of range",
                                        max_positions, rope.original_max_position_embeddings));
  if (rope.kind == RopeKind::kLlama3) {
    require("low_freq_factor");
    require("high_freq_factor");
    rope.low_freq_factor = fields.number("low_freq_factor", kMinFactor, kMaxFactor, 1.0);
    rope.high_freq_factor = fields.number("high_freq_factor", kMinFactor, kMaxFactor, 4.0);
    if (rope.high_freq_factor <= rope.low_freq_factor)
      fields.refuse("high_freq_factor", fmt::format("expected more than low_freq_factor {}, got {}",
                                                    rope.low_freq_factor, rope.high_freq_factor));
  }
  if (rope.kind == RopeKind::kYarn) {
    rope.attention_factor = fields.number("attention_factor", kMinFactor, kMaxFactor);
    rope.mscale = fields.number("mscale", 0.0, kMaxFactor);
    rope.mscale_all_dim = fields.number("mscale_all_dim", 0.0, kMaxFactor);
    // 0 means the default, as in transformers.
    const double fast = fields.number("beta_fast", 0.0, kMaxFactor, 0.0);
    const double slow = fields.number("beta_slow", 0.0, kMaxFactor, 0.0);
    rope.beta_fast = fast == 0.0 ? 32.0 : fast;
    rope.beta_slow = slow == 0.0 ? 1.0 : slow;
    if (rope.beta_fast < rope.beta_slow)
      fields.refuse("beta_fast", fmt::format("expected at least beta_slow {}, got {}",
                                             rope.beta_slow, rope.beta_fast));
    rope.truncate = fields.boolean("truncate", true);
  }
}

RopeConfig read_rope(JsonFields& top, const JsonFields::Names& names, std::string* error,
                     int64_t max_positions) {
  RopeConfig rope;
  // The order of transformers: rope_scaling goes first where it says anything.
  std::string_view where = "rope_scaling";
  const Json* object = top.find(where);
  if (object && object->is_object() && object->as_object()->empty()) object = nullptr;
  if (!object) object = top.find(where = "rope_parameters");
  if (object && !object->is_object()) {
    top.refuse(where, "expected an object, got " + shown(*object));
    return rope;
  }
  const Json nothing = Json::object();
  JsonFields fields(object ? *object : nothing, error, std::string(where) + ".", &names);
  for (const std::string_view nested : {"full_attention", "sliding_attention"})
    if (fields.find(nested)) fields.refuse(nested, "a rope of its own is not supported");

  constexpr double kMaxTheta = 1e15;
  const double theta = top.number("rope_theta", 1.0, kMaxTheta, 10000.0);
  rope.theta = fields.number("rope_theta", 1.0, kMaxTheta, theta);
  for (JsonFields* f : {&top, &fields}) {
    const double partial = f->number("partial_rotary_factor", 0.0, 1.0, 1.0);
    if (partial != 1.0)
      f->refuse("partial_rotary_factor", fmt::format("expected 1, got {}", partial));
  }

  std::string_view key = fields.find("rope_type") ? "rope_type" : "type";
  if (const std::optional<std::string> type = fields.text(key)) {
    const auto found = std::find(kRopeNames.begin(), kRopeNames.end(), *type);
    if (found == kRopeNames.end())
      fields.refuse(key, fmt::format("{} is not supported; supported are default, linear, llama3, "
                                     "yarn",
                                     shown(Json(*type))));
    else
      rope.kind = static_cast<RopeKind>(found - kRopeNames.begin());
  }
  if (rope.kind == RopeKind::kYarn && rope.theta <= 1.0)
    fields.refuse("rope_theta", fmt::format("expected more than 1 for yarn, got {}", rope.theta));
  read_scaling(fields, top, rope, max_positions);
  return rope;
}

// The window of each layer. transformers: Mistral has one for all layers; Qwen has `layer_types`,
// by default sliding from max_window_layers on.
std::vector<int64_t> read_windows(JsonFields& fields, const Json& json, const HfConfig& config) {
  const auto n = static_cast<size_t>(config.num_hidden_layers);
  std::vector<int64_t> windows(n, 0);
  if (config.family == ModelFamily::kLlama) return windows;
  const bool mistral = config.family == ModelFamily::kMistral;
  const bool uses = mistral || fields.boolean("use_sliding_window", false);
  int64_t window = 0;
  if (uses) {
    window = fields.integer("sliding_window", 1, kMaxPositions, 0);
    // Absent is the default of the class; null is none.
    if (!json.find("sliding_window")) window = 4096;
  }
  const int64_t first = mistral ? 0 : fields.integer("max_window_layers", 0, kMaxPositions, 28);
  for (size_t i = 0; i < n; ++i)
    if (static_cast<int64_t>(i) >= first) windows[i] = window;

  const Json* list = fields.find("layer_types");
  if (!list) return windows;
  if (!list->as_array() || list->as_array()->size() != n) {
    fields.refuse(
        "layer_types",
        fmt::format("expected an array of num_hidden_layers = {} names, got {}", n, shown(*list)));
    return windows;
  }
  for (size_t i = 0; i < n; ++i) {
    const std::string* type = (*list->as_array())[i].as_string();
    const bool sliding = type && *type == "sliding_attention";
    if (!sliding && !(type && *type == "full_attention")) {
      fields.refuse("layer_types", fmt::format("{} is not supported; supported are full_attention, "
                                               "sliding_attention",
                                               shown((*list->as_array())[i])));
      return windows;
    }
    if (mistral && sliding != (window != 0))
      fields.refuse("layer_types", "Mistral with layers of other kinds is not supported");
    if (sliding && window == 0)
      fields.refuse("layer_types", "sliding_attention is there, but no sliding_window is in use");
    windows[i] = sliding ? window : 0;
  }
  return windows;
}

std::optional<DType> read_dtype(JsonFields& fields) {
  const std::string_view key = fields.find("dtype") ? "dtype" : "torch_dtype";
  const std::optional<std::string> name = fields.text(key);
  if (!name) return std::nullopt;
  if (*name == "float32") return DType::kF32;
  if (*name == "bfloat16") return DType::kBF16;
  if (*name == "float16") return DType::kF16;
  if (*name != "auto")
    fields.refuse(key, fmt::format("{} is not supported; supported are float32, bfloat16, float16",
                                   shown(Json(*name))));
  return std::nullopt;
}

std::optional<int64_t> read_pad(JsonFields& fields) {
  // -1 is none in old files.
  const std::optional<int64_t> pad = fields.integer("pad_token_id", -1, kMaxId);
  return pad && *pad >= 0 ? pad : std::nullopt;
}

void check_sizes(JsonFields& fields, const HfConfig& c) {
  if (fields.failed()) return;
  if (c.num_attention_heads % c.num_key_value_heads != 0)
    return fields.refuse("num_key_value_heads",
                         fmt::format("expected a divisor of num_attention_heads = {}, got {}",
                                     c.num_attention_heads, c.num_key_value_heads));
  if (c.head_dim > kMaxHeads)
    return fields.refuse("hidden_size", fmt::format("expected heads of at most {} elements, got {}",
                                                    kMaxHeads, c.head_dim));
  if (c.head_dim % 2 != 0)
    return fields.refuse("head_dim", fmt::format("expected an even number, got {}", c.head_dim));
  __int128 layer = 0, all = 0;
  for (const ModelTensor& tensor : model_tensors([&] {
         HfConfig one = c;
         one.num_hidden_layers = std::min<int64_t>(c.num_hidden_layers, 1);
         return one;
       }())) {
    __int128 n = 1;
    for (const int64_t extent : tensor.shape) n *= extent;
    (tensor.name.starts_with("model.layers.") ? layer : all) += n;
  }
  all += layer * c.num_hidden_layers;
  if (all > kMaxElements)
    fields.refuse("num_hidden_layers", "the model would have more than 2^56 parameters");
}

Result<Json> parse_object(std::string_view text, const std::string& path) {
  Result<Json> json = parse_json(text, kLimits);
  if (!json) return fail("{}: {}", path, json.error());
  if (!json->is_object()) return fail("{}: expected an object, got {}", path, shown(*json));
  return json;
}

}  // namespace

std::string_view family_name(ModelFamily family) {
  return defaults_of(family).model_type;
}

std::string_view rope_name(RopeKind kind) {
  return kRopeNames[static_cast<size_t>(kind)];
}

Result<HfConfig> HfConfig::load(const std::string& path) {
  const Result<std::string> text = read_regular_file(path, kMaxFileBytes);
  if (!text) return text.failure();
  return parse(*text, path);
}

Result<HfConfig> HfConfig::parse(std::string_view text, const std::string& path) {
  const Result<Json> json = parse_object(text, path);
  if (!json) return json.failure();
  return from_json(*json, path);
}

Result<HfConfig> HfConfig::from_json(const Json& json, const std::string& path,
                                     const std::map<std::string, std::string>& names) {
  std::string error;
  JsonFields fields(json, &error, "", &names);
  const auto failure = [&] { return fail("{}: {}", path, error); };
  const FamilyDefaults* family = read_family(fields, json);
  if (fields.failed()) return failure();
  for (const std::string_view key : {"quantization_config", "per_layer_config"})
    if (fields.find(key)) fields.refuse(key, "is not supported");

  HfConfig c;
  c.family = family->family;
  c.vocab_size = fields.integer("vocab_size", 1, kMaxVocab, family->vocab_size);
  c.hidden_size = fields.integer("hidden_size", 1, kMaxWidth, 4096);
  c.intermediate_size =
      fields.integer("intermediate_size", 1, kMaxWidth, family->intermediate_size);
  c.num_hidden_layers = fields.integer("num_hidden_layers", 0, kMaxLayers, 32);
  c.num_attention_heads = fields.integer("num_attention_heads", 1, kMaxHeads, 32);
  // Absent is the default of the class; null is num_attention_heads.
  const bool absent = !json.find("num_key_value_heads");
  c.num_key_value_heads = fields.integer(
      "num_key_value_heads", 1, kMaxHeads,
      absent && family->num_key_value_heads ? family->num_key_value_heads : c.num_attention_heads);
  const std::optional<int64_t> head_dim = fields.integer("head_dim", 1, kMaxHeads);
  if (head_dim) {
    c.head_dim = *head_dim;
  } else if (family->head_dim && !json.find("head_dim")) {
    c.head_dim = family->head_dim;
  } else {
    if (c.hidden_size % c.num_attention_heads != 0)
      fields.refuse("hidden_size", fmt::format("expected a multiple of num_attention_heads = {} as "
                                               "head_dim is missing, got {}",
                                               c.num_attention_heads, c.hidden_size));
    c.head_dim = c.hidden_size / c.num_attention_heads;
  }
  c.rms_norm_eps = fields.number("rms_norm_eps", 0.0, 1.0, 1e-6);
  c.tie_word_embeddings = fields.boolean("tie_word_embeddings", false);
  c.max_position_embeddings =
      fields.integer("max_position_embeddings", 1, kMaxPositions, family->max_position_embeddings);

  const bool llama = c.family == ModelFamily::kLlama, qwen3 = c.family == ModelFamily::kQwen3;
  c.attention_bias_o = (llama || qwen3) && fields.boolean("attention_bias", false);
  c.attention_bias_qkv = c.attention_bias_o || c.family == ModelFamily::kQwen2;
  c.mlp_bias = llama && fields.boolean("mlp_bias", false);
  c.qk_norm = qwen3;
  const std::string act = fields.text("hidden_act").value_or("silu");
  if (act != "silu" && act != "swish")
    fields.refuse("hidden_act", fmt::format("expected \"silu\", got {}", shown(Json(act))));

  c.rope = read_rope(fields, names, &error, c.max_position_embeddings);
  c.sliding_windows = read_windows(fields, json, c);
  c.bos_token_id = fields.integer("bos_token_id", 0, kMaxId);
  if (!json.find("bos_token_id")) c.bos_token_id = family->bos;
  c.eos_token_ids = fields.integers("eos_token_id", 0, kMaxId);
  if (!json.find("eos_token_id") && family->eos) c.eos_token_ids = {*family->eos};
  c.pad_token_id = read_pad(fields);
  c.dtype = read_dtype(fields);
  check_sizes(fields, c);
  if (fields.failed()) return failure();
  return c;
}

std::vector<ModelTensor> model_tensors(const HfConfig& c) {
  std::vector<ModelTensor> all;
  const auto add = [&](std::string name, std::vector<int64_t> shape) {
    all.push_back({std::move(name), std::move(shape)});
  };
  const int64_t d = c.hidden_size, q = c.num_attention_heads * c.head_dim,
                kv = c.num_key_value_heads * c.head_dim, f = c.intermediate_size;
  add("model.embed_tokens.weight", {c.vocab_size, d});
  for (int64_t i = 0; i < c.num_hidden_layers; ++i) {
    const std::string layer = fmt::format("model.layers.{}.", i);
    const auto linear = [&](std::string_view name, int64_t out, int64_t in, bool bias) {
      add(fmt::format("{}{}.weight", layer, name), {out, in});
      if (bias) add(fmt::format("{}{}.bias", layer, name), {out});
    };
    add(layer + "input_layernorm.weight", {d});
    linear("self_attn.q_proj", q, d, c.attention_bias_qkv);
    linear("self_attn.k_proj", kv, d, c.attention_bias_qkv);
    linear("self_attn.v_proj", kv, d, c.attention_bias_qkv);
    linear("self_attn.o_proj", d, q, c.attention_bias_o);
    if (c.qk_norm) {
      add(layer + "self_attn.q_norm.weight", {c.head_dim});
      add(layer + "self_attn.k_norm.weight", {c.head_dim});
    }
    add(layer + "post_attention_layernorm.weight", {d});
    linear("mlp.gate_proj", f, d, c.mlp_bias);
    linear("mlp.up_proj", f, d, c.mlp_bias);
    linear("mlp.down_proj", d, f, c.mlp_bias);
  }
  add("model.norm.weight", {d});
  if (!c.tie_word_embeddings) add("lm_head.weight", {c.vocab_size, d});
  return all;
}

Result<GenerationConfig> GenerationConfig::load(const std::string& path) {
  const Result<std::string> text = read_regular_file(path, kMaxFileBytes);
  if (!text) return text.failure();
  return parse(*text, path);
}

Result<GenerationConfig> GenerationConfig::parse(std::string_view text, const std::string& path) {
  const Result<Json> json = parse_object(text, path);
  if (!json) return json.failure();
  std::string error;
  JsonFields fields(*json, &error);
  GenerationConfig c;
  c.eos_token_ids = fields.integers("eos_token_id", 0, kMaxId);
  c.bos_token_id = fields.integer("bos_token_id", 0, kMaxId);
  c.pad_token_id = read_pad(fields);
  c.do_sample = fields.boolean("do_sample");
  c.temperature = fields.number("temperature", 0.0, 1e6);
  c.top_p = fields.number("top_p", 0.0, 1.0);
  c.top_k = fields.integer("top_k", 0, kMaxId);
  if (fields.failed()) return fail("{}: {}", path, error);
  return c;
}

}  // namespace stow
