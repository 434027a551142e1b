#include "stowage/io/hf_config.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <bit>
#include <cmath>

#include "stowage/base/text_file.h"
#include "stowage/io/rope.h"
#include "tests/support/source_path.h"
#include "tests/support/temporary_folder.h"

namespace stow {
namespace {

Json golden() {
  const Result<std::string> text = read_text_file(source_path("tests/data/hf_configs.json"));
  STOW_CHECK(text.ok(), "{}", text.error());
  Result<Json> json = parse_json(*text);
  STOW_CHECK(json.ok(), "{}", json.error());
  return std::move(*json);
}

Json id_json(const std::optional<int64_t>& id) {
  return id ? Json(*id) : Json();
}

Json ids_json(const std::vector<int64_t>& ids) {
  return Json(Json::Array(ids.begin(), ids.end()));
}

// An HfConfig as the goldens write it.
Json expected_of(const HfConfig& c) {
  return Json::object({
      {"vocab_size", c.vocab_size},
      {"hidden_size", c.hidden_size},
      {"intermediate_size", c.intermediate_size},
      {"num_hidden_layers", c.num_hidden_layers},
      {"num_attention_heads", c.num_attention_heads},
      {"num_key_value_heads", c.num_key_value_heads},
      {"head_dim", c.head_dim},
      {"rms_norm_eps", c.rms_norm_eps},
      {"tie_word_embeddings", c.tie_word_embeddings},
      {"attention_bias_qkv", c.attention_bias_qkv},
      {"attention_bias_o", c.attention_bias_o},
      {"mlp_bias", c.mlp_bias},
      {"max_position_embeddings", c.max_position_embeddings},
      {"sliding_windows", ids_json(c.sliding_windows)},
      {"bos_token_id", id_json(c.bos_token_id)},
      {"pad_token_id", id_json(c.pad_token_id)},
      {"eos_token_ids", ids_json(c.eos_token_ids)},
      {"dtype", !c.dtype                  ? Json()
                : *c.dtype == DType::kF32 ? Json("float32")
                : *c.dtype == DType::kF16 ? Json("float16")
                                          : Json("bfloat16")},
  });
}

HfConfig parsed(const Json& json) {
  Result<HfConfig> config = HfConfig::from_json(json, "config.json");
  STOW_CHECK(config.ok(), "{}", config.error());
  return std::move(*config);
}

TEST(HfConfig, ReadsWhatTransformersReads) {
  const Json cases = golden();
  ASSERT_GE(cases.as_array()->size(), 20u);
  for (const Json& row : *cases.as_array()) {
    SCOPED_TRACE(*row.find("name")->as_string());
    const Result<HfConfig> config = HfConfig::parse(row.find("config")->dump(), "config.json");
    ASSERT_TRUE(config.ok()) << config.error();
    EXPECT_EQ(expected_of(*config).dump(), row.find("expected")->dump());
    EXPECT_EQ(family_name(config->family), *row.find("config")->find("model_type")->as_string());
    EXPECT_EQ(config->qk_norm, config->family == ModelFamily::kQwen3);
  }
}

TEST(HfConfig, SurvivesWriting) {
  const Json cases = golden();
  for (const Json& row : *cases.as_array()) {
    SCOPED_TRACE(*row.find("name")->as_string());
    const HfConfig config = parsed(*row.find("config"));
    EXPECT_EQ(parsed(config.to_json()), config) << config.to_json().dump();
  }
}

int64_t ulps_apart(float a, float b) {
  return std::abs(int64_t{std::bit_cast<int32_t>(a)} - int64_t{std::bit_cast<int32_t>(b)});
}

TEST(RopeFrequencies, EqualTransformers) {
  const Json cases = golden();
  int64_t n = 0, n_equal = 0;
  for (const Json& row : *cases.as_array()) {
    SCOPED_TRACE(*row.find("name")->as_string());
    const HfConfig config = parsed(*row.find("config"));
    const RopeFrequencies ours = rope_frequencies(config.rope, config.head_dim);
    EXPECT_DOUBLE_EQ(ours.attention_scaling, *row.find("attention_scaling")->as_double());
    const Json::Array& bits = *row.find("inv_freq_bits")->as_array();
    ASSERT_EQ(ours.inv_freq.size(), bits.size());
    for (size_t i = 0; i < bits.size(); ++i, ++n) {
      const float theirs = std::bit_cast<float>(static_cast<uint32_t>(*bits[i].as_int()));
      EXPECT_LE(ulps_apart(ours.inv_freq[i], theirs), 1) << i;
      n_equal += ours.inv_freq[i] == theirs;
    }
  }
  EXPECT_GE(n_equal, n * 9 / 10) << "of " << n;
}

TEST(RopeFrequencies, AreDividedByWhatAFileGives) {
  RopeConfig rope;
  const std::vector<float> plain = rope_frequencies(rope, 4).inv_freq;
  rope.divisors = {2.0f, 8.0f};
  EXPECT_EQ(rope_frequencies(rope, 4).inv_freq,
            (std::vector<float>{plain[0] / 2.0f, plain[1] / 8.0f}));
}

TEST(HfConfig, ListsTheTensorsOfAModel) {
  HfConfig c = parsed(*parse_json(R"({"model_type": "qwen3", "vocab_size": 10, "hidden_size": 8,
      "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 4,
      "num_key_value_heads": 2, "head_dim": 6, "attention_bias": true})"));
  std::string text;
  for (const ModelTensor& tensor : model_tensors(c))
    text += fmt::format("{} {}\n", tensor.name, ids_json(tensor.shape).dump());
  EXPECT_EQ(text,
            "model.embed_tokens.weight [10, 8]\n"
            "model.layers.0.input_layernorm.weight [8]\n"
            "model.layers.0.self_attn.q_proj.weight [24, 8]\n"
            "model.layers.0.self_attn.q_proj.bias [24]\n"
            "model.layers.0.self_attn.k_proj.weight [12, 8]\n"
            "model.layers.0.self_attn.k_proj.bias [12]\n"
            "model.layers.0.self_attn.v_proj.weight [12, 8]\n"
            "model.layers.0.self_attn.v_proj.bias [12]\n"
            "model.layers.0.self_attn.o_proj.weight [8, 24]\n"
            "model.layers.0.self_attn.o_proj.bias [8]\n"
            "model.layers.0.self_attn.q_norm.weight [6]\n"
            "model.layers.0.self_attn.k_norm.weight [6]\n"
            "model.layers.0.post_attention_layernorm.weight [8]\n"
            "model.layers.0.mlp.gate_proj.weight [12, 8]\n"
            "model.layers.0.mlp.up_proj.weight [12, 8]\n"
            "model.layers.0.mlp.down_proj.weight [8, 12]\n"
            "model.norm.weight [8]\n"
            "lm_head.weight [10, 8]\n");
}

std::string refusal(std::string_view text) {
  const Result<HfConfig> config = HfConfig::parse(text, "m/config.json");
  if (config.ok()) return "";
  EXPECT_TRUE(config.error().starts_with("m/config.json: ")) << config.error();
  EXPECT_EQ(config.error().find('\n'), std::string::npos);
  return config.error().substr(15);
}

// The refusal of a tiny model of a family with some members more.
std::string refusal_with(std::string_view members, std::string_view family = "llama") {
  return refusal(fmt::format(R"({{"model_type": "{}", "hidden_size": 64, "num_hidden_layers": 2,
      "num_attention_heads": 4, "num_key_value_heads": 2, {}}})",
                             family, members));
}

TEST(HfConfig, RefusesByName) {
  EXPECT_EQ(
      refusal(R"({"architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2"})"),
      "architectures: \"Gemma2ForCausalLM\" is not supported; supported are LlamaForCausalLM, "
      "MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM");
  EXPECT_EQ(refusal(R"({"model_type": "qwen3_moe"})"),
            "model_type: \"qwen3_moe\" is not supported; supported are LlamaForCausalLM, "
            "MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM");
  EXPECT_EQ(refusal(R"({"architectures": ["LlamaForCausalLM"], "model_type": "qwen2"})"),
            "model_type: expected \"llama\" as architectures has LlamaForCausalLM, got \"qwen2\"");
  EXPECT_EQ(refusal("{}"), "architectures: is missing, and so is model_type");
  EXPECT_EQ(refusal(R"({"architectures": "LlamaForCausalLM"})"),
            "architectures: expected an array of names, got \"LlamaForCausalLM\"");
  EXPECT_EQ(refusal("[1]"), "expected an object, got [1]");
  EXPECT_EQ(refusal(R"({"model_type": "llama", "model_type": "llama"})"),
            "not JSON that can be read: the key 'model_type' stands twice");

  EXPECT_EQ(refusal_with(R"("quantization_config": {"bits": 4})"),
            "quantization_config: is not supported");
  EXPECT_EQ(refusal_with(R"("hidden_act": "gelu")"), "hidden_act: expected \"silu\", got \"gelu\"");
  EXPECT_EQ(
      refusal_with(R"("rope_scaling": {"type": "dynamic", "factor": 2.0})"),
      "rope_scaling.type: \"dynamic\" is not supported; supported are default, linear, llama3, "
      "yarn");
  EXPECT_EQ(refusal_with(R"("rope_parameters": {"rope_type": "longrope"})"),
            "rope_parameters.rope_type: \"longrope\" is not supported; supported are default, "
            "linear, llama3, yarn");
  EXPECT_EQ(refusal_with(R"("rope_parameters": {"rope_type": "linear"})"),
            "rope_parameters.factor: is missing for rope_type \"linear\"");
  EXPECT_EQ(refusal_with(R"("rope_scaling": {"rope_type": "llama3", "factor": 8})"),
            "rope_scaling.low_freq_factor: is missing for rope_type \"llama3\"");
  EXPECT_EQ(refusal_with(R"("rope_scaling": {"rope_type": "llama3", "factor": 8,
                "low_freq_factor": 4, "high_freq_factor": 4})"),
            "rope_scaling.high_freq_factor: expected more than low_freq_factor 4, got 4");
  EXPECT_EQ(refusal_with(R"("rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5})"),
            "rope_parameters.partial_rotary_factor: expected 1, got 0.5");
  EXPECT_EQ(refusal_with(R"("partial_rotary_factor": 0.25)"),
            "partial_rotary_factor: expected 1, got 0.25");
  EXPECT_EQ(refusal_with(R"("rope_parameters": {"full_attention": {"rope_theta": 1e4}})", "qwen3"),
            "rope_parameters.full_attention: a rope of its own is not supported");
  EXPECT_EQ(refusal_with(R"("rope_scaling": [1])"), "rope_scaling: expected an object, got [1]");
  EXPECT_EQ(refusal_with(R"("torch_dtype": "int8")"),
            "torch_dtype: \"int8\" is not supported; supported are float32, bfloat16, float16");
  EXPECT_EQ(refusal_with(R"("layer_types": ["full_attention"])", "qwen2"),
            "layer_types: expected an array of num_hidden_layers = 2 names, got "
            "[\"full_attention\"]");
  EXPECT_EQ(refusal_with(R"("layer_types": ["full_attention", "conv"])", "qwen2"),
            "layer_types: \"conv\" is not supported; supported are full_attention, "
            "sliding_attention");
  EXPECT_EQ(refusal_with(R"("layer_types": ["full_attention", "sliding_attention"])", "qwen3"),
            "layer_types: sliding_attention is there, but no sliding_window is in use");
}

TEST(HfConfig, RefusesNumbersOutOfRange) {
  EXPECT_EQ(refusal_with(R"("vocab_size": -5)"),
            "vocab_size: expected an integer from 1 to 268435456, got -5");
  EXPECT_EQ(refusal_with(R"("vocab_size": 1e300)"),
            "vocab_size: expected an integer from 1 to 268435456, got 1e+300");
  EXPECT_EQ(refusal_with(R"("vocab_size": 18446744073709551615)"),
            "vocab_size: expected an integer from 1 to 268435456, got 18446744073709551615");
  EXPECT_EQ(refusal_with(R"("intermediate_size": "96")"),
            "intermediate_size: expected an integer from 1 to 16777216, got \"96\"");
  EXPECT_EQ(refusal_with(R"("intermediate_size": true)"),
            "intermediate_size: expected an integer from 1 to 16777216, got true");
  EXPECT_EQ(refusal_with(R"("rms_norm_eps": 2)"),
            "rms_norm_eps: expected a number from 0 to 1, got 2");
  EXPECT_EQ(refusal_with(R"("rope_theta": 1e300)"),
            "rope_theta: expected a number from 1 to 1000000000000000, got 1e+300");
  EXPECT_EQ(refusal_with(R"("tie_word_embeddings": 1)"),
            "tie_word_embeddings: expected true or false, got 1");
  EXPECT_EQ(refusal_with(R"("head_dim": 17)"), "head_dim: expected an even number, got 17");
  EXPECT_EQ(refusal_with(R"("eos_token_id": [1, -1])"),
            "eos_token_id: expected an integer or at most 1024 integers from 0 to 2147483647, got "
            "[1, -1]");
  EXPECT_EQ(refusal(R"({"model_type": "llama", "num_attention_heads": 6, "hidden_size": 96,
                "num_key_value_heads": 4})"),
            "num_key_value_heads: expected a divisor of num_attention_heads = 6, got 4");
  EXPECT_EQ(
      refusal(R"({"model_type": "llama", "num_attention_heads": 3, "hidden_size": 64})"),
      "hidden_size: expected a multiple of num_attention_heads = 3 as head_dim is missing, got "
      "64");
  EXPECT_EQ(refusal(R"({"model_type": "llama", "hidden_size": 16777216, "head_dim": 65536,
                "num_attention_heads": 65536, "intermediate_size": 16777216})"),
            "num_hidden_layers: the model would have more than 2^56 parameters");
  EXPECT_EQ(refusal_with(R"("num_hidden_layers2": 0, "max_position_embeddings": 0)"),
            "max_position_embeddings: expected an integer from 1 to 1099511627776, got 0");
}

TEST(HfConfig, SaysThatAFileIsMissingOrNoFile) {
  const TemporaryFolder folder;
  const std::string path = folder / "config.json";
  const Result<HfConfig> config = HfConfig::load(path);
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.error(), path + ": No such file or directory");
  // Nobody will ever write into this pipe.
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(HfConfig::load(path).error(), path + ": is not a regular file");
}

TEST(GenerationConfig, Reads) {
  const Result<GenerationConfig> c = GenerationConfig::parse(
      R"({"eos_token_id": [128001, 128009], "bos_token_id": 128000, "do_sample": true,
          "temperature": 0.6, "top_p": 0.9, "top_k": 20, "transformers_version": "4.42"})",
      "g.json");
  ASSERT_TRUE(c.ok()) << c.error();
  EXPECT_EQ(c->eos_token_ids, (std::vector<int64_t>{128001, 128009}));
  EXPECT_EQ(c->bos_token_id, 128000);
  EXPECT_EQ(c->pad_token_id, std::nullopt);
  EXPECT_EQ(c->do_sample, true);
  EXPECT_EQ(c->temperature, 0.6);
  EXPECT_EQ(c->top_p, 0.9);
  EXPECT_EQ(c->top_k, 20);
  EXPECT_EQ(GenerationConfig::parse(R"({"eos_token_id": 7})", "g.json")->eos_token_ids,
            std::vector<int64_t>{7});
  EXPECT_EQ(GenerationConfig::parse(R"({"top_p": 1.5})", "g.json").error(),
            "g.json: top_p: expected a number from 0 to 1, got 1.5");
}

}  // namespace
}  // namespace stow
