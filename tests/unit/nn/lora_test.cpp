// Adapters over the decoder: values against merged weights, gradients, and what they cost.
#include "stowage/nn/lora.h"

#include <gtest/gtest.h>

#include <cmath>

#include "stowage/nn/decoder.h"
#include "stowage/stowage.h"

namespace stow::nn {
namespace {

DecoderConfig small(bool out_in = true) {
  DecoderConfig c;
  c.vocab = 40;
  c.dim = 16;
  c.layers = 3;
  c.heads = 4;
  c.kv_heads = 2;
  c.ffn = 24;
  c.qkv_bias = true;
  c.out_in = out_in;
  return c;
}

// All matrices, ranks and scales of their own.
LoraConfig everything(const DecoderConfig& c) {
  LoraConfig lora;
  for (size_t m = 0; m < kNumLoraMatrices; ++m) {
    const auto r = static_cast<int64_t>(m % 3 + 1);
    lora.layers[m] = {r, {}, {}};
    for (int64_t l = 0; l < c.layers; ++l)
      lora.layers[m].scales.push_back(0.25f * static_cast<float>(l + 1) +
                                      0.5f * static_cast<float>(m));
  }
  lora.embed = {2, {}, {1.5f}};
  lora.head = {4, {}, {0.75f}};
  return lora;
}

Lora random_lora(const DecoderConfig& c, const LoraConfig& config, uint64_t seed = 5) {
  int64_t n = 0;
  return tree_map(
      [&](const Array& x) {
        return random::normal(random::fold_in(random::key(seed), n++), x.shape()) * 0.2;
      },
      lora_abstract(c, config));
}

// scale * B A as a matrix of the decoder's orientation.
Array product(const DecoderConfig& c, const Array& a, const Array& b, double scale) {
  const Array ba = matmul(b, a) * scale;  // [out, in]
  return c.out_in ? ba : swapaxes(ba, 0, 1);
}

Array stacked(const DecoderConfig& c, const std::optional<LowRank>& factors,
              const LoraTarget& target) {
  std::vector<Array> parts;
  for (int64_t l = 0; l < c.layers; ++l) {
    const auto of = [&](const Array& x) {
      return x.slice(0, l, l + 1).reshape({x.dim(1), x.dim(2)});
    };
    const Array one =
        product(c, of(factors->a), of(factors->b), target.scales[static_cast<size_t>(l)]);
    parts.push_back(one.reshape({1, one.dim(0), one.dim(1)}));
  }
  return concatenate(parts);
}

Decoder merged(const DecoderConfig& c, const Decoder& base, const Lora& lora,
               const LoraConfig& config) {
  Decoder m = base;
  const auto add = [&](Array& w, size_t i) {
    if (const auto& factors = lora_matrix(lora.layers, i))
      w = w + stacked(c, factors, config.layers[i]);
  };
  DecoderLayer& w = m.layers;
  add(w.wq, kLoraQ);
  add(w.wk, kLoraK);
  add(w.wv, kLoraV);
  add(w.wo, kLoraO);
  add(w.w1, kLoraGate);
  add(w.w3, kLoraUp);
  add(w.w2, kLoraDown);
  if (lora.embed)
    m.embed =
        m.embed + swapaxes(matmul(lora.embed->b, lora.embed->a), 0, 1) * config.embed.scales[0];
  if (lora.head) m.head = *m.head + product(c, lora.head->a, lora.head->b, config.head.scales[0]);
  return m;
}

Array some_tokens() {
  return random::randint(random::key(9), {2, 7}, 0, 40);
}

Array log_probs(const DecoderConfig& c, const Decoder& m, const ForwardOptions& options,
                int64_t chunk) {
  const Array tokens = some_tokens();
  const Array hidden = forward_layers(c, m, tokens, options).hidden;
  return decoder_log_probs(c, m, hidden, tokens, chunk, options);
}

double distance(const Array& a, const Array& b) {
  return max(abs(a - b)).item<float>() / std::max(1e-6f, max(abs(b)).item<float>());
}

TEST(Lora, GivesWhatMergedWeightsGive) {
  for (const bool out_in : {true, false}) {
    const DecoderConfig c = small(out_in);
    const LoraConfig config = everything(c);
    const Decoder base = decoder_init(c, random::key(1));
    const Lora lora = random_lora(c, config);
    ForwardOptions with;
    with.lora = lora;
    with.lora_config = &config;
    const Decoder whole = merged(c, base, lora, config);
    const Array expected = log_probs(c, whole, {}, 256);
    EXPECT_GT(distance(log_probs(c, base, {}, 256), expected), 1e-3);
    for (const int64_t chunk : {3, 256})
      EXPECT_LE(distance(log_probs(c, base, with, chunk), expected), 1e-5);
    const Array hidden = forward_layers(c, whole, some_tokens()).hidden;
    EXPECT_LE(distance(decoder_logits(c, base, hidden, {}, with), decoder_logits(c, whole, hidden)),
              1e-5);
  }
}

// The chain rule over the merged matrix: dB = scale dW A', dA = scale B' dW.
TEST(Lora, GradientsAreThoseOfMergedWeights) {
  const DecoderConfig c = small();
  const LoraConfig config = everything(c);
  const Decoder base = decoder_init(c, random::key(1));
  const Lora lora = random_lora(c, config);
  const Array weights = random::normal(random::key(3), {2, 7});
  const auto expected = grad([&](const Lora& l) {
    return sum(log_probs(c, merged(c, base, l, config), {}, 256) * weights);
  })(lora);
  for (const int64_t chunk : {3, 8, 16, 32, 256})
    for (const int64_t ffn_chunk : {0, 4}) {
      DecoderConfig chunked = c;
      chunked.ffn_chunk = ffn_chunk;
      const auto got = grad([&](const Lora& l) {
        ForwardOptions with;
        with.lora = l;
        with.lora_config = &config;
        return sum(log_probs(chunked, base, with, chunk) * weights);
      })(lora);
      const auto a = tree_leaves(got), b = tree_leaves(expected);
      const std::vector<std::string> names = tree_paths(got);
      for (size_t i = 0; i < a.size(); ++i)
        EXPECT_LE(distance(a[i], b[i]), 2e-5) << names[i] << " chunk " << chunk;
    }
}

TEST(Lora, CheckpointingAndBlocksChangeNoBit) {
  DecoderConfig c = small();
  const LoraConfig config = everything(c);
  const Decoder base = decoder_init(c, random::key(1));
  const Lora lora = random_lora(c, config);
  const auto bits = [&](const PolicyPtr& policy, std::vector<int64_t> blocks) {
    c.nested_blocks = std::move(blocks);
    const auto gradient = jit(grad([&](const Lora& l) {
      ForwardOptions with;
      with.policy = policy;
      with.lora = l;
      with.lora_config = &config;
      return sum(log_probs(c, base, with, 256));
    }))(lora);
    std::vector<float> all;
    for (const Array& leaf : tree_leaves(gradient))
      for (const float x : leaf.to_vector<float>()) all.push_back(x);
    return all;
  };
  const std::vector<float> expected = bits(everything_saveable(), {});
  EXPECT_EQ(bits(nullptr, {}), expected);
  EXPECT_EQ(bits(nullptr, {2}), expected);
}

// Base weights are arguments that nothing differentiates: no array of their size is made.
TEST(Lora, AStepHoldsNoGradientOfTheBase) {
  DecoderConfig c = small();
  c.layers = 16;
  c.dim = 64;
  c.ffn = 256;
  LoraConfig config;
  for (size_t m = 0; m < kNumLoraMatrices; ++m)
    config.layers[m] = {2, {}, std::vector<float>(16, 1.0f)};
  const auto step = [&](const Decoder& w, const Lora& lora, const Array& tokens) {
    return grad([&](const Lora& l) {
      ForwardOptions with;
      with.lora = l;
      with.lora_config = &config;
      return sum(
          decoder_log_probs(c, w, forward_layers(c, w, tokens, with).hidden, tokens, 256, with));
    })(lora);
  };
  const Decoder types = decoder_abstract(c);
  const Lora adapter = lora_abstract(c, config);
  const auto analysis = jit(step)
                            .lower(types, adapter, Array::abstract({1, 4}, DType::kI32))
                            .compile()
                            .memory_analysis();
  int64_t base = 0, small_ones = 0, layers = 0;
  for (const Array& leaf : tree_leaves(types)) base += leaf.type().bytes();
  for (const Array& leaf : tree_leaves(types.layers)) layers += leaf.type().bytes();
  for (const Array& leaf : tree_leaves(adapter)) small_ones += leaf.type().bytes();
  // Arguments, results, carries of 16 layers, and what one layer and the head need.
  const int64_t beside = analysis.device().total_bytes - base - 2 * small_ones;
  EXPECT_LT(beside, layers / 8);
}

// A base that lies elsewhere is streamed: no more than a layer of it and the embedding are there.
TEST(Lora, AStepStreamsABaseOfTheHostOrDisk) {
  DecoderConfig c = small();
  c.layers = 16;
  c.dim = 64;
  c.ffn = 256;
  const LoraConfig config = lora_config(c, {kLoraQ, kLoraDown}, 2, 1.0);
  const auto step = [&](const Decoder& w, const Lora& lora, const Array& tokens) {
    return grad([&](const Lora& l) {
      ForwardOptions with;
      with.lora = l;
      with.lora_config = &config;
      const Array hidden = forward_layers(c, w, tokens, with).hidden;
      return sum(decoder_log_probs(c, w, hidden, tokens, 256, with));
    })(lora);
  };
  int64_t base = 0;
  for (const Array& leaf : tree_leaves(decoder_abstract(c))) base += leaf.type().bytes();
  for (const MemoryKind kind : {MemoryKind::kPinnedHost, MemoryKind::kDisk}) {
    const Decoder types =
        tree_map([&](const Array& leaf) { return device_put(leaf, kind); }, decoder_abstract(c));
    const auto lowered =
        jit(step).lower(types, lora_abstract(c, config), Array::abstract({1, 4}, DType::kI32));
    const MemoryAnalysis analysis = lowered.compile().memory_analysis();
    EXPECT_GE(analysis.kinds[static_cast<size_t>(kind)].total_bytes, base);
    EXPECT_LT(analysis.device().total_bytes, base / 4);
  }
}

TEST(Lora, InitIsPeftsAndCutToEachRank) {
  const DecoderConfig c = small();
  LoraConfig config = lora_config(c, {kLoraQ, kLoraDown}, 8, 2.0);
  config.layers[kLoraQ].ranks = {8, 0, 3};
  config.embed = {4, {}, {1.0f}};
  const Lora lora = lora_init(c, config, random::key(4));
  EXPECT_EQ(tree_paths(lora), tree_paths(lora_abstract(c, config)));
  EXPECT_FALSE(lora.layers.wk.has_value());
  const std::vector<float> q = lora.layers.wq->a.to_vector<float>();
  const std::vector<int64_t> ranks = {8, 0, 3};
  for (int64_t l = 0; l < 3; ++l)
    for (int64_t r = 0; r < 8; ++r)
      for (int64_t i = 0; i < 16; ++i) {
        const float x = q[static_cast<size_t>((l * 8 + r) * 16 + i)];
        EXPECT_LE(std::abs(x), 0.25f);
        EXPECT_EQ(x == 0, r >= ranks[static_cast<size_t>(l)]) << l << " " << r;
      }
  const float most = max(abs(lora.layers.w2->a)).item<float>();
  EXPECT_LE(most, 1 / std::sqrt(24.0f));
  EXPECT_GT(most, 0.9f / std::sqrt(24.0f));
  EXPECT_EQ(max(abs(lora.layers.w2->b)).item<float>(), 0.0f);
  EXPECT_EQ(max(abs(lora.embed->a)).item<float>(), 0.0f);
  EXPECT_GT(max(abs(lora.embed->b)).item<float>(), 1.0f);
}

TEST(Lora, DropoutIsOfItsKeyAndOfTrainingAlone) {
  const DecoderConfig c = small();
  LoraConfig config = everything(c);
  const Decoder base = decoder_init(c, random::key(1));
  ForwardOptions with;
  with.lora = random_lora(c, config);
  with.lora_config = &config;
  const std::vector<float> without = log_probs(c, base, with, 256).to_vector<float>();
  config.dropout = 0.5;
  EXPECT_EQ(log_probs(c, base, with, 256).to_vector<float>(), without);
  with.dropout_key = random::key(1);
  const std::vector<float> one = log_probs(c, base, with, 256).to_vector<float>();
  EXPECT_NE(one, without);
  EXPECT_EQ(log_probs(c, base, with, 256).to_vector<float>(), one);
  with.dropout_key = random::key(2);
  EXPECT_NE(log_probs(c, base, with, 256).to_vector<float>(), one);
  // Kept elements are scaled, so that the mean stays.
  const Array x = ones({200, 100}), a = ones({1, 100}) / 100.0;
  const Array z = low_rank_input(x, a, {1.0f, 0.25, random::key(3)});
  EXPECT_NEAR(mean(z).item<float>(), 1.0, 0.02);
  EXPECT_GT(max(abs(z - 1.0)).item<float>(), 0.05f);
}

TEST(Lora, SavedWeightsStandInForTheDecoders) {
  DecoderConfig c = small();
  c.tied = true;
  LoraConfig config;
  config.saved_embed = true;
  const Decoder base = decoder_init(c, random::key(1)), other = decoder_init(c, random::key(2));
  ForwardOptions with;
  with.lora = Lora{};
  with.lora->saved_embed = other.embed;
  with.lora_config = &config;
  Decoder expected = base;
  expected.head = base.embed;  // of a tied decoder the head stays
  expected.embed = other.embed;
  EXPECT_EQ(log_probs(c, base, with, 256).to_vector<float>(),
            log_probs(c, expected, {}, 256).to_vector<float>());
}

TEST(Lora, AdaptersOfBf16ComputeInF32) {
  DecoderConfig c = small();
  c.compute = DType::kBF16;
  const Array y = full({1, 1}, 1.0, DType::kBF16), x = full({1, 4}, 1.0, DType::kBF16);
  // In bf16 1 + 2^-7 would be the sum of A's 1/256 a time; the sum of f32 is rounded once.
  const LowRank factors{full({1, 4}, 1.0 + 1.0 / 512), ones({1, 1})};
  const Array made = add_low_rank(y, x, factors, {1.0f});
  EXPECT_EQ(made.dtype(), DType::kBF16);
  EXPECT_EQ(low_rank_input(x, factors.a, {1.0f}).item<float>(), 4.0f + 4.0f / 512);
}

TEST(Lora, RefusesWhatDoesNotGoTogether) {
  DecoderConfig c = small();
  LoraConfig config = lora_config(c, {kLoraQ}, 2, 1.0);
  ForwardOptions with;
  with.lora = lora_init(c, config, random::key(1));
  const Decoder base = decoder_init(c, random::key(1));
  EXPECT_THROW(forward_layers(c, base, some_tokens(), with), TraceError);
  const LoraConfig other = lora_config(c, {kLoraK}, 2, 1.0);
  with.lora_config = &other;
  EXPECT_THROW(forward_layers(c, base, some_tokens(), with), TraceError);
  config.dropout = 0.1;
  with.lora_config = &config;
  with.dropout_key = random::key(1);
  EXPECT_NO_THROW(forward_layers(c, base, some_tokens(), with));
  c.ffn_chunk = 2;
  EXPECT_THROW(forward_layers(c, base, some_tokens(), with), TraceError);
  config.layers[kLoraQ].scales.pop_back();
  EXPECT_THROW(lora_abstract(c, config), TraceError);
}

}  // namespace
}  // namespace stow::nn
