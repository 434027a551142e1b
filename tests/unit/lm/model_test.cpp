// Models of every family and variant against transformers, models loaded and saved, and gradients
// of loaded models. The goldens are in tests/data/lm, with the program that made them.
#include "stowage/lm/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>

#include "stowage/io/safetensors.h"
#include "stowage/stowage.h"
#include "tests/support/lm_kit.h"
#include "tests/support/source_path.h"
#include "tests/support/temporary_folder.h"

namespace stow::lm {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMiB = 1 << 20;
constexpr double kLimit = 2e-5;  // of the largest logit or hidden state

std::vector<float> tensor(const SafetensorsFile& file, const std::string& name) {
  const TensorInfo* info = file.find(name);
  STOW_CHECK(info, "{}", name);
  std::vector<float> values(static_cast<size_t>(info->n_bytes) / sizeof(float));
  STOW_CHECK(file.read(*info, std::as_writable_bytes(std::span(values))).ok(), "{}", name);
  return values;
}

// The largest difference of two lists, as a part of the largest number of the second.
double apart(const std::vector<float>& ours, const std::vector<float>& theirs) {
  if (ours.size() != theirs.size()) return INFINITY;
  double off = 0, most = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    off = std::max(off, std::abs(double{ours[i]} - theirs[i]));
    if (std::isnan(ours[i])) off = INFINITY;
    most = std::max(most, std::abs(double{theirs[i]}));
  }
  return off / most;
}

// Of [blocks, T, width] the last `kept` of T.
std::vector<float> last_of(const std::vector<float>& all, int64_t blocks, int64_t t, int64_t kept,
                           int64_t width) {
  std::vector<float> made;
  for (int64_t b = 0; b < blocks; ++b)
    made.insert(made.end(), all.begin() + (b * t + t - kept) * width,
                all.begin() + (b + 1) * t * width);
  return made;
}

struct Variant {
  const char* name;
  bool has_long_rows = false;
};

class Goldens : public ::testing::TestWithParam<Variant> {};

TEST_P(Goldens, LogitsAndHiddenStatesAreThoseOfTransformers) {
  const std::string name = GetParam().name;
  const HfConfig config = lm_config(name);
  const TemporaryFolder folder;
  write_lm(folder.path(), config);
  const Result<SafetensorsFile> goldens =
      SafetensorsFile::open(source_path("tests/data/lm/goldens.safetensors"));
  ASSERT_TRUE(goldens.ok()) << goldens.error();
  const Result<Model> model = load(folder.path());
  ASSERT_TRUE(model.ok()) << model.error();
  std::vector<int64_t> lengths = {5, 33};
  if (GetParam().has_long_rows) lengths.insert(lengths.end(), {512, 9000});
  for (const int64_t t : lengths) {
    const int64_t kept = t > 33 ? 4 : t;
    const ScoreResult made = score(*model, whole_rows({formula_tokens(t, config.vocab_size)}),
                                   {.logits = true, .hidden = true});
    const std::string key = fmt::format("{}/{}/", name, t);
    EXPECT_LE(apart(last_of(made.logits, 1, t, kept, config.vocab_size),
                    tensor(*goldens, key + "logits")),
              kLimit)
        << key;
    EXPECT_LE(apart(last_of(made.hidden, config.num_hidden_layers + 1, t, kept, config.hidden_size),
                    tensor(*goldens, key + "hidden")),
              kLimit)
        << key;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Families, Goldens,
    ::testing::Values(Variant{"llama", true}, Variant{"llama-tied-mha"},
                      Variant{"llama-wide-heads-biases"}, Variant{"llama-rope-llama3", true},
                      Variant{"llama-rope-linear", true}, Variant{"llama-rope-yarn", true},
                      Variant{"llama-no-layers"}, Variant{"mistral-window", true}, Variant{"qwen2"},
                      Variant{"qwen2-window"}, Variant{"qwen3"}, Variant{"qwen3-tied"}),
    [](const auto& info) {
      std::string name = info.param.name;
      std::erase(name, '-');
      return name;
    });

TEST(LmModel, WindowsBeginAtMaxWindowLayersWithoutLayerTypes) {
  std::string text = read_bytes(source_path("tests/data/lm/qwen2-window.json"));
  Result<Json> json = parse_json(text);
  ASSERT_TRUE(json.ok());
  Json old = Json::object();
  for (const JsonMember& member : *json->as_object())
    if (member.key != "layer_types") old.set(member.key, member.value);
  const Result<HfConfig> config = HfConfig::parse(old.dump(), "config.json");
  ASSERT_TRUE(config.ok()) << config.error();
  EXPECT_EQ(config->sliding_windows, (std::vector<int64_t>{0, 6, 6}));
  EXPECT_EQ(*config, lm_config("qwen2-window"));
}

std::vector<float> logits_of(const Model& model) {
  return score(model, whole_rows({formula_tokens(20, model.config().vocab_size)}), {.logits = true})
      .logits;
}

TEST(LmModel, SavedModelsGiveTheSameBits) {
  for (const char* name : {"llama-wide-heads-biases", "llama-rope-yarn", "llama-no-layers",
                           "mistral-window", "qwen2-window", "qwen3-tied"})
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const TemporaryFolder from, to;
      write_lm(from.path(), lm_config(name), dtype);
      write_lm_tokenizer(from.path());
      const Result<Model> model = load(from.path());
      ASSERT_TRUE(model.ok()) << name << ": " << model.error();
      EXPECT_EQ(model->options().dtype, dtype);
      const Result<void> saved = save(*model, to / "new");
      ASSERT_TRUE(saved.ok()) << name << ": " << saved.error();
      const Result<Model> again = load(to / "new");
      ASSERT_TRUE(again.ok()) << name << ": " << again.error();
      EXPECT_EQ(again->config(), model->config()) << name;
      EXPECT_EQ(logits_of(*again), logits_of(*model)) << name;
      EXPECT_TRUE(again->files().text.has_value()) << again->files().no_text;
    }
}

TEST(LmModel, WeightsOnTheDiskAreSavedAlike) {
  const TemporaryFolder from, to;
  write_lm(from.path(), lm_config("qwen3"));
  const Result<Model> model = load(from.path(), {.memory = MemoryKind::kDisk});
  ASSERT_TRUE(model.ok()) << model.error();
  ASSERT_TRUE(save(*model, to.path()).ok());
  EXPECT_EQ(read_bytes(to / "model.safetensors"), read_bytes(from / "model.safetensors"));
}

// Loading holds the weights and no more of any memory kind.
TEST(LmModel, ThePeakOfLoadingIsTheWeights) {
  const TemporaryFolder folder;
  const HfConfig config = lm_config("qwen3");
  write_lm(folder.path(), config);
  for (const MemoryKind kind : {MemoryKind::kDevice, MemoryKind::kPinnedHost, MemoryKind::kDisk})
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const WeightOptions options{dtype, kind};
      const DevicePtr device = device_for(kind, int64_t{64} << 20, 1);
      const Result<Model> model = load(folder.path(), options, device);
      ASSERT_TRUE(model.ok()) << model.error();
      EXPECT_EQ(measured_peaks(*device), weight_bytes(config, options));
    }
}

// What a position of a mesh reads: every leaf, cut along any of its axes, in its own type and in
// another.
TEST(LmModel, SlicesOfWeightsAreThoseOfTheWhole) {
  const TemporaryFolder folder;
  write_lm(folder.path(), lm_config("qwen2"));
  std::mt19937 random(5);
  for (const MemoryKind kind : {MemoryKind::kDevice, MemoryKind::kDisk})
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const Result<Model> model = load(folder.path(), {.dtype = dtype});
      ASSERT_TRUE(model.ok()) << model.error();
      const WeightSource& source = *model->files().weights;
      const nn::Decoder types = abstract_weights(model->config(), {.dtype = dtype});
      const std::vector<Array> leaves = tree_leaves(types);
      const std::vector<std::string> paths = tree_paths(types);
      const DevicePtr device = device_for(kind, int64_t{64} << 20, 1);
      Digest digest;
      for (size_t i = 0; i < leaves.size(); ++i) {
        const ArrayType& type = leaves[i].type();
        ASSERT_TRUE(digest_weight(source, paths[i], type, digest).ok());
        for (int k = 0; k < 4; ++k) {
          TensorSlice slice = whole_slice(type.shape.dims());
          for (size_t axis = 0; axis < slice.sizes.size(); ++axis)
            if (random() % 2 == 0 && slice.sizes[axis] > 1) {
              const int64_t half = slice.sizes[axis] / 2;
              slice.starts[axis] = random() % 2 == 0 ? 0 : half;
              slice.sizes[axis] = slice.starts[axis] == 0 ? half : slice.sizes[axis] - half;
            }
          const auto from_whole = [&](int64_t offset, std::span<std::byte> out) -> Result<void> {
            model->weights()[i]->read(offset, out);
            return {};
          };
          std::vector<std::byte> expected(static_cast<size_t>(slice.elems() * dtype_bytes(dtype)));
          ASSERT_TRUE(read_common(from_whole, whole_slice(type.shape.dims()), 0, slice,
                                  dtype_bytes(dtype), expected)
                          .ok());
          const auto n_bytes = static_cast<int64_t>(expected.size());
          const DeviceBufferPtr buffer = device->allocate(n_bytes, kind);
          const Result<void> read = read_weight_slice(source, paths[i], type, slice, *buffer);
          ASSERT_TRUE(read.ok()) << read.error();
          std::vector<std::byte> got(expected.size());
          buffer->read(0, got);
          EXPECT_TRUE(got == expected) << paths[i] << " " << to_string(slice);
        }
      }
      EXPECT_EQ(weights_digest(source, types).value(), digest.hex());
    }
}

TEST(LmModel, ConvertsWeightsAsTheyAreRead) {
  const TemporaryFolder wide, narrow;
  write_lm(wide.path(), lm_config("qwen2"));
  write_lm(narrow.path(), lm_config("qwen2"), DType::kBF16);
  const Result<Model> rounded = load(wide.path(), {.dtype = DType::kBF16});
  const Result<Model> stored = load(narrow.path());
  ASSERT_TRUE(rounded.ok() && stored.ok());
  EXPECT_EQ(logits_of(*rounded), logits_of(*stored));
}

// f16 weights are held as they are stored, at half the bytes, and computed with in f32.
TEST(LmModel, HoldsHalfPrecisionAsItIsStored) {
  const TemporaryFolder folder;
  HfConfig config = lm_config("qwen3");
  config.dtype = DType::kF16;
  write_lm(folder.path(), config, DType::kF16);
  const Result<Model> held = load(folder.path());
  const Result<Model> widened = load(folder.path(), {.dtype = DType::kF32});
  ASSERT_TRUE(held.ok() && widened.ok());
  EXPECT_EQ(weight_dtype(held->config(), held->options()), DType::kF16);
  EXPECT_EQ(2 * weight_bytes(config, held->options())[0],
            weight_bytes(config, widened->options())[0]);
  EXPECT_EQ(logits_of(*held), logits_of(*widened));
  // What is computed in is apart from what is stored.
  const Result<Model> rounded = load(folder.path(), {.compute = DType::kBF16});
  ASSERT_TRUE(rounded.ok());
  EXPECT_NE(logits_of(*rounded), logits_of(*held));
}

TEST(LmModel, AFolderWithoutWeightsIsPlannedAndNotLoaded) {
  const TemporaryFolder folder;
  write_bytes(folder / "config.json", lm_config("qwen3").to_json().dump());
  const Result<ModelFiles> files = ModelFiles::open(folder.path());
  ASSERT_TRUE(files.ok()) << files.error();
  EXPECT_EQ(files->weights, nullptr);
  const Result<Model> model = load(folder.path());
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.error(), folder.path() +
                               ": there are no weights: expected model.safetensors, its index or a "
                               "GGUF file");
}

TEST(LmModel, RefusesWhatIsMissingByName) {
  EXPECT_EQ(load("/no/such/model").error(), "/no/such/model: no such file or folder");
  const TemporaryFolder folder;
  EXPECT_THAT(load(folder.path()).error(), HasSubstr("config.json"));
  // The weights of another model: one tensor is misshaped.
  HfConfig config = lm_config("qwen3");
  write_lm(folder.path(), config);
  config.intermediate_size = 50;
  write_bytes(folder / "config.json", config.to_json().dump());
  const std::string error = load(folder.path()).error();
  EXPECT_THAT(error, HasSubstr("model.safetensors"));
  EXPECT_THAT(error, HasSubstr("mlp."));
  EXPECT_THAT(error, HasSubstr("50"));
}

TEST(LmModel, EndTokensOfGenerationConfigGoFirst) {
  const TemporaryFolder folder;
  write_lm(folder.path(), lm_config("llama"));
  EXPECT_EQ(ModelFiles::open(folder.path())->eos_token_ids(), (std::vector<int64_t>{2}));
  write_bytes(folder / "generation_config.json", R"({"eos_token_id": [7, 9]})");
  EXPECT_EQ(ModelFiles::open(folder.path())->eos_token_ids(), (std::vector<int64_t>{7, 9}));
}

// ---- Training: policies and blocks change no bit of loss and gradients, and gradients are those
// of finite differences ----

struct Step {
  float loss = 0;
  std::vector<std::vector<float>> gradients;
  friend bool operator==(const Step&, const Step&) = default;
};

Array tokens_of(int64_t rows, int64_t length) {
  return Array::from(formula_tokens(rows * length, 80), {rows, length});
}

Step step_of(const nn::DecoderConfig& config, const nn::Decoder& weights, const Array& tokens,
             const PolicyPtr& policy) {
  const auto [loss, gradient] = jit([&](const nn::Decoder& w, const Array& t) {
    return value_and_grad(
        [&](const nn::Decoder& m) { return nn::decoder_loss(config, m, t, policy); })(w);
  })(weights, tokens);
  Step step{loss.item<float>(), {}};
  for (const Array& leaf : tree_leaves(gradient)) step.gradients.push_back(leaf.to_vector<float>());
  return step;
}

TEST(LmTraining, PoliciesAndBlocksChangeNoBit) {
  for (const char* family :
       {"llama", "llama-tied-mha", "llama-wide-heads-biases", "llama-rope-yarn", "llama-no-layers",
        "mistral-window", "qwen2", "qwen2-window", "qwen3", "qwen3-tied"}) {
    const TemporaryFolder folder;
    HfConfig hf = lm_config(family);
    if (hf.num_hidden_layers == 2) {
      hf.num_hidden_layers = 4;
      if (!hf.sliding_windows.empty()) hf.sliding_windows.assign(4, hf.sliding_windows[0]);
    }
    write_lm(folder.path(), hf);
    const DevicePtr device = Device::virtual_device({64 * kMiB, 64 * kMiB, 0}, 1);
    const DefaultDevice guard(device);
    const Result<Model> model = load(folder.path(), {}, device);
    ASSERT_TRUE(model.ok()) << model.error();
    const Array tokens = tokens_of(2, 13);
    nn::DecoderConfig config = model->decoder();
    const Step plain = step_of(config, model->arrays(), tokens, nullptr);
    EXPECT_TRUE(std::isfinite(plain.loss));
    for (const std::vector<float>& leaf : plain.gradients) {
      double norm = 0;
      for (const float x : leaf) norm += double{x} * x;
      EXPECT_TRUE(leaf.empty() || norm > 0) << family;
    }
    const std::pair<const char*, PolicyPtr> policies[] = {
        {"everything", everything_saveable()},
        {"nothing", nothing_saveable()},
        {"offload",
         save_and_offload_only_these_names({"attn_q", "attn_k"}, {"attn_out", "mlp_gate"})}};
    for (const auto& [name, policy] : policies)
      EXPECT_EQ(step_of(config, model->arrays(), tokens, policy), plain) << family << " " << name;
    if (config.layers % 2 == 0 && config.layers > 0) {
      config.nested_blocks = {2};
      EXPECT_EQ(step_of(config, model->arrays(), tokens, nothing_saveable()), plain) << family;
    }
  }
}

// Directional derivatives of every leaf, biases and norms of queries and keys among them.
TEST(LmTraining, GradientsAreThoseOfFiniteDifferences) {
  const TemporaryFolder folder;
  HfConfig hf = lm_config("qwen3");
  hf.attention_bias_qkv = hf.attention_bias_o = true;
  hf.hidden_size = 16;
  hf.intermediate_size = 24;
  write_lm(folder.path(), hf);
  const Result<Model> model = load(folder.path());
  ASSERT_TRUE(model.ok()) << model.error();
  const nn::DecoderConfig config = model->decoder();
  const Array tokens = tokens_of(2, 9);
  const nn::Decoder weights = model->arrays();
  const Step step = step_of(config, weights, tokens, nullptr);
  const std::vector<Array> leaves = tree_leaves(weights);
  const std::vector<std::string> paths = tree_paths(weights);
  const auto loss =
      jit([&](const nn::Decoder& w, const Array& t) { return nn::decoder_loss(config, w, t); });
  for (size_t i = 0; i < leaves.size(); ++i) {
    // Along the gradient: the largest slope that there is, so that f32 suffices.
    double norm = 0;
    for (const float x : step.gradients[i]) norm += double{x} * x;
    norm = std::sqrt(norm);
    ASSERT_GT(norm, 0) << paths[i];
    const double h = 4e-3;
    const auto moved = [&](double by) {
      std::vector<float> values = leaves[i].to_vector<float>();
      for (size_t j = 0; j < values.size(); ++j)
        values[j] += static_cast<float>(by * step.gradients[i][j] / norm);
      std::vector<Array> all = leaves;
      all[i] = Array::from(values, leaves[i].shape());
      return double{loss(tree_unflatten(weights, all), tokens).template item<float>()};
    };
    const double slope = (moved(h) - moved(-h)) / (2 * h);
    EXPECT_NEAR(slope, norm, 2e-3 * norm + 2e-4) << paths[i];
  }
}

}  // namespace
}  // namespace stow::lm
