// Adapters of PEFT folders against peft itself (tests/data/peft.json, with the program that made
// it), written and read again, merged, and refused.
#include "stowage/lm/adapter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "stowage/lm/fuse.h"
#include "stowage/lm/generate.h"
#include "stowage/stowage.h"
#include "tests/support/peft_kit.h"

namespace stow {
namespace {

using ::testing::HasSubstr;
using testing::peft_cases;
using testing::TensorSet;

lm::ModelFiles open_model(const std::string& path) {
  Result<lm::ModelFiles> files = lm::ModelFiles::open(path);
  STOW_CHECK(files.ok(), "{}", files.error());
  return std::move(*files);
}

Result<lm::AdapterFiles> open_adapter(const std::string& path, const lm::ModelFiles& model) {
  return lm::AdapterFiles::open(path, model.config, model.weights.get());
}

std::vector<float> logits_of(const lm::ModelFiles& files, const lm::AdapterFiles* adapter,
                             const lm::TokenRows& rows, std::optional<DType> dtype = {}) {
  lm::WeightOptions options;
  options.dtype = dtype;
  if (adapter) options.adapter = std::make_shared<const lm::AdapterFiles>(*adapter);
  const Result<lm::Model> model = lm::load(files, options);
  STOW_CHECK(model.ok(), "{}", model.error());
  return lm::score(*model, rows, {.logits = true}).logits;
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  STOW_CHECK(a.size() == b.size());
  double most = 0, scale = 1e-6;
  for (size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(static_cast<double>(a[i]) - b[i]));
    scale = std::max(scale, std::abs(static_cast<double>(b[i])));
  }
  return most / scale;
}

// Of every third token of each row.
std::vector<float> thirds(const std::vector<float>& logits, const lm::TokenRows& rows) {
  const size_t vocab = logits.size() / static_cast<size_t>(rows.n * rows.length);
  std::vector<float> picked;
  for (int64_t i = 0; i < rows.n; ++i)
    for (int64_t j = 0; j < rows.length; j += 3) {
      const auto at = logits.begin() + static_cast<std::ptrdiff_t>(vocab) * (i * rows.length + j);
      picked.insert(picked.end(), at, at + static_cast<std::ptrdiff_t>(vocab));
    }
  return picked;
}

class PeftCases : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const nlohmann::json file = peft_cases();
    case_ = file["cases"][GetParam()];
    rows_ = testing::peft_tokens(file);
    testing::write_base(folder_ / "base", case_["tied"].get<bool>());
    testing::write_adapter(folder_ / "adapter", case_["config"], testing::peft_tensors(case_));
    model_ = open_model(folder_ / "base");
    if (case_["bf16"].get<bool>()) dtype_ = DType::kBF16;
  }
  lm::AdapterFiles adapter(const std::string& name = "adapter") {
    Result<lm::AdapterFiles> adapter = open_adapter(folder_ / name, model_);
    STOW_CHECK(adapter.ok(), "{}", adapter.error());
    return std::move(*adapter);
  }

  TemporaryFolder folder_;
  nlohmann::json case_;
  lm::TokenRows rows_;
  lm::ModelFiles model_;
  std::optional<DType> dtype_;
};

TEST_P(PeftCases, LogitsAreThoseOfPeft) {
  const lm::AdapterFiles files = adapter();
  const auto expected = case_["logits"].get<std::vector<float>>();
  const double tolerance = dtype_ ? 3e-2 : 2e-5;
  EXPECT_LE(distance(thirds(logits_of(model_, &files, rows_, dtype_), rows_), expected), tolerance);
  // The adapter matters.
  EXPECT_GT(distance(thirds(logits_of(model_, nullptr, rows_, dtype_), rows_), expected), 5e-2);
}

// Gradients go through save_adapter() for the names that PEFT has for them.
TEST_P(PeftCases, GradientsAreThoseOfPeft) {
  const lm::AdapterFiles files = adapter();
  const Result<lm::Adapter> loaded = lm::load_adapter(files, model_.config);
  ASSERT_TRUE(loaded.ok()) << loaded.error();
  const Result<lm::Model> model = lm::load(model_);
  ASSERT_TRUE(model.ok()) << model.error();
  const nn::Decoder weights = model->arrays();
  std::vector<Array> ids;
  for (const int32_t id : rows_.tokens) ids.push_back(full({1}, id, DType::kI32));
  const Array tokens = concatenate(ids).reshape({rows_.n, rows_.length});
  const Array targets = tokens.slice(1, 1, rows_.length);
  for (const int64_t chunk : {4, 256}) {
    const nn::Lora gradients = grad([&](const nn::Lora& lora) {
      nn::ForwardOptions with;
      with.lora = lora;
      with.lora_config = &loaded->config;
      const Array hidden = nn::forward_layers(model->decoder(), weights, tokens, with).hidden;
      return -mean(nn::decoder_log_probs(
          model->decoder(), weights, hidden.slice(1, 0, rows_.length - 1), targets, chunk, with));
    })(loaded->arrays);
    ASSERT_TRUE(
        lm::save_adapter(gradients, loaded->config, model_.config, folder_ / "gradients").ok());
    const Result<SafetensorsFile> file =
        SafetensorsFile::open(folder_ / "gradients/adapter_model.safetensors");
    ASSERT_TRUE(file.ok()) << file.error();
    for (const auto& [name, norm] : case_["gradients"].items()) {
      const TensorInfo* tensor = file->find(name);
      ASSERT_TRUE(tensor) << name;
      std::vector<float> values(static_cast<size_t>(tensor->n_bytes) / sizeof(float));
      ASSERT_TRUE(file->read(*tensor, std::as_writable_bytes(std::span(values))).ok());
      double squares = 0;
      for (const float x : values) squares += static_cast<double>(x) * x;
      EXPECT_NEAR(std::sqrt(squares), norm.get<double>(), 1e-5 * norm.get<double>() + 1e-8) << name;
    }
    EXPECT_EQ(dtype_.has_value(), case_["gradients"].empty());
  }
}

TEST_P(PeftCases, WrittenAndReadAgainItIsTheSame) {
  const lm::AdapterFiles files = adapter();
  const Result<lm::Adapter> loaded = lm::load_adapter(files, model_.config);
  ASSERT_TRUE(loaded.ok()) << loaded.error();
  for (const bool rslora : {false, true}) {
    const Result<void> saved = lm::save_adapter(loaded->arrays, loaded->config, model_.config,
                                                folder_ / "again", {"base", rslora});
    ASSERT_TRUE(saved.ok()) << saved.error();
    const lm::AdapterFiles again = adapter("again");
    EXPECT_EQ(again.peft.use_rslora, rslora);
    ASSERT_EQ(again.plan.targets.size(), files.plan.targets.size());
    for (size_t i = 0; i < files.plan.targets.size(); ++i) {
      EXPECT_EQ(again.plan.targets[i].name, files.plan.targets[i].name);
      EXPECT_EQ(again.plan.targets[i].rank, files.plan.targets[i].rank);
      EXPECT_FLOAT_EQ(static_cast<float>(again.plan.targets[i].scale),
                      static_cast<float>(files.plan.targets[i].scale));
    }
    EXPECT_LE(distance(logits_of(model_, &again, rows_), logits_of(model_, &files, rows_)), 1e-6);
  }
}

TEST_P(PeftCases, FusedItGivesTheSameLogits) {
  const lm::AdapterFiles files = adapter();
  const Result<lm::Fused> fused = lm::fuse(model_, files, folder_ / "fused");
  ASSERT_TRUE(fused.ok()) << fused.error();
  const lm::ModelFiles merged = open_model(folder_ / "fused");
  EXPECT_EQ(merged.config.tie_word_embeddings, model_.config.tie_word_embeddings && !fused->untied);
  EXPECT_LE(distance(logits_of(merged, nullptr, rows_), logits_of(model_, &files, rows_)), 1e-5);
}

TEST_P(PeftCases, PredictedIsMeasured) {
  lm::WeightOptions weights;
  weights.adapter = std::make_shared<const lm::AdapterFiles>(adapter());
  const DevicePtr device = lm::device_for(MemoryKind::kDevice, int64_t{1} << 30, 1);
  lm::ScoreOptions options;
  options.adapter = weights.adapter;
  const lm::ScoreProgram program = lm::plan_score(model_.config, rows_, options);
  const Result<lm::Model> model = lm::load(model_, program.weights(), device);
  ASSERT_TRUE(model.ok()) << model.error();
  lm::score(*model, program, rows_);
  EXPECT_EQ(device->high_water_bytes(MemoryKind::kDevice), program.peak_bytes()[0]);
}

INSTANTIATE_TEST_SUITE_P(Peft, PeftCases,
                         ::testing::Values("attention", "all_linear", "rslora", "regex", "anchored",
                                           "patterns", "layers", "excluded", "embedding",
                                           "embedding_tied", "head_tied", "saved", "saved_tied",
                                           "bf16"),
                         [](const auto& info) { return info.param; });

TEST(Adapter, GeneratesAsItsFusedModel) {
  const TemporaryFolder folder;
  const nlohmann::json one = peft_cases()["cases"]["embedding_tied"];
  testing::write_base(folder / "base", true);
  testing::write_adapter(folder / "adapter", one["config"], testing::peft_tensors(one));
  const lm::ModelFiles model = open_model(folder / "base");
  Result<lm::AdapterFiles> files = open_adapter(folder / "adapter", model);
  ASSERT_TRUE(files.ok()) << files.error();
  ASSERT_TRUE(lm::fuse(model, *files, folder / "fused").ok());
  lm::GenerateOptions options;
  options.max_tokens = 12;
  options.sampling.temperature = 0;
  const std::vector<std::vector<int32_t>> prompts = {{1, 5, 9}, {20, 3, 7, 7, 2}};
  const auto ids = [&](const std::string& path, std::shared_ptr<const lm::AdapterFiles> adapter) {
    const DevicePtr device = lm::device_for(MemoryKind::kDevice, int64_t{1} << 30, 1);
    options.adapter = std::move(adapter);
    std::vector<int64_t> lengths;
    for (const auto& prompt : prompts) lengths.push_back(static_cast<int64_t>(prompt.size()));
    const lm::ModelFiles opened = open_model(path);
    const lm::GeneratePrograms programs = lm::plan_generate(opened.config, lengths, options);
    const Result<lm::Model> loaded = lm::load(opened, programs.weights(), device);
    STOW_CHECK(loaded.ok(), "{}", loaded.error());
    const auto made = lm::generate(*loaded, programs, prompts, options);
    STOW_CHECK(made.ok(), "{}", made.error());
    EXPECT_EQ(device->high_water_bytes(MemoryKind::kDevice), programs.peak_bytes()[0]);
    std::vector<std::vector<int32_t>> all;
    for (const lm::Generated& g : *made) all.push_back(g.ids);
    return all;
  };
  const auto expected = ids(folder / "fused", nullptr);
  EXPECT_EQ(ids(folder / "base", std::make_shared<const lm::AdapterFiles>(*files)), expected);
  EXPECT_NE(ids(folder / "base", nullptr), expected);
}

// What is refused of a folder, behind its path.
class AdapterErrors : public ::testing::Test {
 protected:
  AdapterErrors() {
    testing::write_base(folder_ / "base", false);
    model_ = open_model(folder_ / "base");
    const nlohmann::json one = peft_cases()["cases"]["attention"];
    config_ = one["config"];
    tensors_ = testing::peft_tensors(one);
  }
  std::string error() {
    testing::write_adapter(folder_ / "adapter", config_, tensors_);
    const Result<lm::AdapterFiles> opened = open_adapter(folder_ / "adapter", model_);
    if (opened.ok()) return "";
    const std::string prefix = folder_ / "adapter/";
    EXPECT_THAT(opened.error(), ::testing::StartsWith(prefix));
    EXPECT_EQ(opened.error().find('\n'), std::string::npos);
    return opened.error().substr(prefix.size());
  }
  std::string with(const char* key, nlohmann::json value) {
    const nlohmann::json before = config_;
    config_[key] = std::move(value);
    std::string message = error();
    config_ = before;
    return message;
  }

  TemporaryFolder folder_;
  lm::ModelFiles model_;
  nlohmann::json config_;
  TensorSet tensors_;
};

TEST_F(AdapterErrors, NameTheKeyOfTheConfiguration) {
  EXPECT_EQ(error(), "");
  const auto expect = [&](const char* key, nlohmann::json value, const std::string& message) {
    EXPECT_EQ(with(key, std::move(value)), "adapter_config.json: " + message);
  };
  expect("peft_type", "IA3", "peft_type: expected \"LORA\", got \"IA3\"");
  expect("use_dora", true, "use_dora: DoRA is not supported");
  expect("lora_bias", true, "lora_bias: biases of adapters are not supported");
  expect("bias", "all", "bias: expected \"none\", got \"all\"");
  expect("task_type", "SEQ_CLS", "task_type: expected \"CAUSAL_LM\", got \"SEQ_CLS\"");
  expect("init_lora_weights", "pissa",
         "init_lora_weights: \"pissa\" is not supported: it may have changed the base's weights");
  expect("use_qalora", true, "use_qalora: true is not supported");
  expect("layer_replication", {{0, 1}}, "layer_replication: [[0, 1]] is not supported");
  expect("trainable_token_indices", {1, 2}, "trainable_token_indices: [1, 2] is not supported");
  expect("ensure_weight_tying", true, "ensure_weight_tying: true is not supported");
  expect("something_new", 3, "something_new: 3 is not supported");
  expect("r", 0, "r: expected an integer from 1 to 65536, got 0");
  expect("r", 1e300, "r: expected an integer from 1 to 65536, got 1e+300");
  expect("lora_dropout", 1.0, "lora_dropout: expected less than 1, got 1");
  expect("target_modules", nullptr,
         "target_modules: expected names of modules, a pattern or \"all-linear\", got nothing");
  expect("target_modules", {"nothing"}, "target_modules: the model has no such module");
  expect("target_modules", {"self_attn"},
         "target_modules: model.layers.0.self_attn takes no adapter");
  expect("target_modules", {"q_proj", 1}, "target_modules: expected names, got 1");
  expect("target_modules", "(q_proj", "target_modules: missing closing parenthesis");
  expect("target_modules", "(?P<x>q_proj)",
         "target_modules: the construct '(?P' at byte 0 is not supported");
  expect("layers_to_transform", {0, 3}, "layers_to_transform: expected layers from 0 to 2, got 3");
  expect("layers_pattern", "h", "layers_pattern: expected \"layers\", got \"h\"");
  expect("modules_to_save", {"norm"},
         "modules_to_save: \"norm\" is model.layers.0.input_layernorm, which is not supported; the "
         "embedding, lm_head and model.norm are");
  expect("modules_to_save", {"score"}, "modules_to_save: the model has no module \"score\"");
  expect("rank_pattern", {{"q_proj", 0}},
         "rank_pattern: \"q_proj\": expected a number in range, got 0");
  expect("alpha_pattern", {{"q[", 1}}, "alpha_pattern: \"q[\": a class has no end");
}

TEST_F(AdapterErrors, NameTheTensor) {
  const std::string name = "base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight";
  const std::string file = "adapter_model.safetensors: ";
  TensorSet good = tensors_;
  tensors_.remove(name);
  EXPECT_EQ(error(), file + "the tensor \"" + name + "\" is missing");
  tensors_ = good;
  tensors_.add(name, {4, 15});
  EXPECT_EQ(error(), file + "\"" + name + "\": expected f32[4,16] or bf16 or f16, got f32[4,15]");
  tensors_ = good;
  // SkyRL's exports without target_modules let PEFT drop these in silence.
  tensors_.add("base_model.model.model.layers.1.mlp.up_proj.lora_A.weight", {4, 16});
  EXPECT_EQ(error(),
            file +
                "the tensor \"base_model.model.model.layers.1.mlp.up_proj.lora_A.weight\" is of "
                "no module that adapter_config.json targets");
  tensors_ = good;
  tensors_.add("base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector", {16});
  EXPECT_THAT(error(), HasSubstr("lora_magnitude_vector"));
  tensors_ = good;
  tensors_.add("base_model.model.lm_head.base_layer.weight", {24, 16}, "another");
  EXPECT_EQ(error(), file +
                         "\"base_model.model.lm_head.base_layer.weight\": differs from the model's "
                         "weight in row 0");
}

TEST_F(AdapterErrors, SayThatPicklesAreNotRead) {
  testing::write_adapter(folder_ / "adapter", config_, tensors_);
  std::filesystem::rename(folder_ / "adapter/adapter_model.safetensors",
                          folder_ / "adapter/adapter_model.bin");
  const Result<lm::AdapterFiles> opened = open_adapter(folder_ / "adapter", model_);
  ASSERT_FALSE(opened.ok());
  EXPECT_THAT(opened.error(), HasSubstr("adapter_model.bin: pickles are not read"));
}

TEST(PeftConfig, IsWhatItsJsonSays) {
  for (const auto& [name, one] : peft_cases()["cases"].items()) {
    const Result<PeftConfig> config = PeftConfig::parse(one["config"].dump(), "x");
    ASSERT_TRUE(config.ok()) << config.error();
    const Result<PeftConfig> again = PeftConfig::parse(config->to_json().dump(), "x");
    ASSERT_TRUE(again.ok()) << again.error();
    EXPECT_EQ(*again, *config) << name;
  }
}

}  // namespace
}  // namespace stow
