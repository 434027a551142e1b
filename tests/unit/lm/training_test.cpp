// Training a model of a file: policies and blocks change no bit of loss and gradients, and gradients are
// those of finite differences.
#include <gtest/gtest.h>

#include <cmath>

#include "stowage/lm/model.h"
#include "stowage/stowage.h"
#include "tests/support/lm_kit.h"
#include "tests/support/temporary_folder.h"

namespace stow::lm {
namespace {

constexpr int64_t kMiB = 1 << 20;

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
    return value_and_grad([&](const nn::Decoder& m) { return nn::decoder_loss(config, m, t, policy); })(w);
  })(weights, tokens);
  Step step{loss.item<float>(), {}};
  for (const Array& leaf : tree_leaves(gradient)) step.gradients.push_back(leaf.to_vector<float>());
  return step;
}

TEST(LmTraining, PoliciesAndBlocksChangeNoBit) {
  for (const char* family : {"llama", "llama-tied-mha", "llama-wide-heads-biases", "llama-rope-yarn", "llama-no-layers",
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
        {"offload", save_and_offload_only_these_names({"attn_q", "attn_k"}, {"attn_out", "mlp_gate"})}};
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
  const auto loss = jit([&](const nn::Decoder& w, const Array& t) { return nn::decoder_loss(config, w, t); });
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
