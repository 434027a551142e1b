// Slots over the decoder: each row as its adapter alone gives it, log-probabilities in chunks,
// gradients and the base.
#include "stowage/nn/lora_slots.h"

#include <gtest/gtest.h>

#include <cmath>

#include "stowage/nn/decoder.h"
#include "stowage/stowage.h"

namespace stow::nn {
namespace {

constexpr int64_t kVocab = 40;

DecoderConfig small() {
  DecoderConfig c;
  c.vocab = kVocab;
  c.dim = 16;
  c.layers = 3;
  c.heads = 4;
  c.kv_heads = 2;
  c.ffn = 24;
  c.out_in = true;
  return c;
}

const LoraSlotsConfig kSlots = {.adapters = 3, .max_rank = 4, .unembed = true};

template <typename Tree>
Tree random_tree(const Tree& types, uint64_t seed) {
  int64_t n = 0;
  return tree_map(
      [&](const Array& x) {
        return random::normal(random::fold_in(random::key(seed), n++), x.shape()) * 0.3;
      },
      types);
}

struct Setting {
  DecoderConfig config = small();
  Decoder base = decoder_init(config, random::key(1));
  LoraSlots slots = random_tree(lora_slots_abstract(config, kSlots), 2);
  SlotScales scales = random_tree(slot_scales_abstract(config, kSlots), 3);
};

// One adapter as a single one, and its configuration.
std::pair<Lora, LoraConfig> alone(const Setting& s, int64_t slot) {
  const int64_t at = slot - 1, r = kSlots.max_rank;
  LoraConfig config;
  Lora lora;
  const std::vector<float> scales = s.scales.layers.to_vector<float>();
  const auto of_layers = [&](const Array& x) {
    return x.slice(1, at, at + 1).reshape({x.dim(0), x.dim(2), x.dim(3)});
  };
  for (size_t m = 0; m < kNumLoraMatrices; ++m) {
    config.layers[m].rank = r;
    for (int64_t l = 0; l < s.config.layers; ++l)
      config.layers[m].scales.push_back(
          scales[static_cast<size_t>((l * kSlots.adapters + at)) * kNumLoraMatrices + m]);
    const LowRank& all = *lora_matrix(s.slots.layers, m);
    lora_matrix(lora.layers, m) = LowRank{of_layers(all.a), of_layers(all.b)};
  }
  config.embed = {r, {}, {s.scales.embed.to_vector<float>()[static_cast<size_t>(at)]}};
  config.head = {r, {}, {s.scales.head.to_vector<float>()[static_cast<size_t>(at)]}};
  const auto first = [&](const Array& x) {
    return x.slice(0, at, at + 1).reshape({x.dim(1), x.dim(2)});
  };
  lora.embed = LowRank{swapaxes(first(s.slots.embed->a), 0, 1), first(s.slots.embed->b)};
  lora.head = LowRank{first(s.slots.head->a),
                      s.slots.head->b.slice(1, at, at + 1).reshape({s.config.vocab, r})};
  return {lora, config};
}

Array tokens_of(int64_t b, int64_t t, uint64_t seed = 9) {
  return random::randint(random::key(seed), {b, t}, 0, kVocab);
}

ForwardOptions with_slots(const LoraSlots& slots, const SlotScales& scales,
                          const std::vector<int32_t>& rows) {
  ForwardOptions options;
  options.slots =
      SlotRows{slots, scales, Array::from(rows, {static_cast<int64_t>(rows.size())})};
  return options;
}

Array log_probs(const Setting& s, const Array& tokens, const ForwardOptions& options,
                int64_t chunk) {
  const Array hidden = forward_layers(s.config, s.base, tokens, options).hidden;
  return decoder_log_probs(s.config, s.base, hidden, tokens, chunk, options);
}

double distance(const Array& a, const Array& b) {
  return max(abs(a - b)).item<float>() / std::max(1e-6f, max(abs(b)).item<float>());
}

std::vector<float> values(const Array& x) {
  return x.to_vector<float>();
}

TEST(LoraSlots, RowsAreTheirAdaptersAlone) {
  const Setting s;
  const Array tokens = tokens_of(4, 7);
  const std::vector<int32_t> rows = {2, 0, 3, 2};
  const ForwardOptions with = with_slots(s.slots, s.scales, rows);
  const ForwardResult made = forward_layers(s.config, s.base, tokens, with);
  const Array logits = decoder_logits(s.config, s.base, made.hidden, {}, with);
  const Array logprobs = decoder_log_probs(s.config, s.base, made.hidden, tokens, 256, with);
  for (int64_t b = 0; b < 4; ++b) {
    const int32_t slot = rows[static_cast<size_t>(b)];
    const Array own = tokens.slice(0, b, b + 1);
    ForwardOptions options;
    LoraConfig config;
    if (slot > 0) std::tie(options.lora.emplace(), config) = alone(s, slot);
    options.lora_config = &config;
    const Array hidden = forward_layers(s.config, s.base, own, options).hidden;
    EXPECT_LE(distance(made.hidden.slice(0, b, b + 1), hidden), 1e-5) << b;
    EXPECT_LE(
        distance(logits.slice(0, b, b + 1), decoder_logits(s.config, s.base, hidden, {}, options)),
        1e-5);
    EXPECT_LE(distance(logprobs.slice(0, b, b + 1),
                       decoder_log_probs(s.config, s.base, hidden, own, 256, options)),
              1e-5);
  }
  // They are adapters that matter.
  EXPECT_GT(distance(logprobs, log_probs(s, tokens, {}, 256)), 1e-2);
}

TEST(LoraSlots, TheBaseHasItsOwnBits) {
  Setting s;
  // What lies in slots is not read by rows of the base.
  s.slots.layers.wq->a =
      full(s.slots.layers.wq->a.shape(), std::numeric_limits<double>::quiet_NaN());
  const Array tokens = tokens_of(3, 7);
  const ForwardOptions with = with_slots(s.slots, s.scales, {0, 0, 0});
  EXPECT_EQ(values(forward_layers(s.config, s.base, tokens, with).hidden),
            values(forward_layers(s.config, s.base, tokens).hidden));
  for (const int64_t chunk : {2, 256})
    EXPECT_EQ(values(log_probs(s, tokens, with, chunk)), values(log_probs(s, tokens, {}, chunk)));
  Setting fresh;
  fresh.config.compute = DType::kBF16;
  const ForwardOptions bf16 = with_slots(fresh.slots, fresh.scales, {0, 0, 0});
  EXPECT_EQ(values(log_probs(fresh, tokens, bf16, 256)), values(log_probs(fresh, tokens, {}, 256)));
}

struct ChunkCase {
  int64_t b, t, chunk;
};

// SkyRL tx's cases, with gradients of hidden states and of the adapters of the head.
TEST(LoraSlots, ChunksChangeNeitherLogProbsNorGradients) {
  const Setting s;
  const ChunkCase cases[] = {{2, 4, 1},   {2, 4, 2},  {2, 4, 3},  {2, 4, 8}, {2, 4, 16},
                             {1, 8, 3},   {4, 1, 2},  {1, 1, 1},  {3, 4, 5}, {4, 2, 3},
                             {3, 4, 256}, {2, 16, 8}, {2, 40, 32}};
  const std::vector<std::vector<int32_t>> patterns = {
      {0, 0, 0, 0}, {1, 2, 3, 1}, {2, 2, 2, 2}, {0, 3, 0, 1}};
  for (const auto& [b, t, chunk] : cases)
    for (const std::vector<int32_t>& pattern : patterns) {
      const std::vector<int32_t> rows(pattern.begin(), pattern.begin() + b);
      const Array hidden = random::normal(random::key(4), {b, t, s.config.dim});
      const Array targets = tokens_of(b, t), weights = random::normal(random::key(5), {b, t});
      const auto loss = [&](const Array& h, const LoraSlots& slots, int64_t c) {
        return decoder_log_probs(s.config, s.base, h, targets, c,
                                 with_slots(slots, s.scales, rows));
      };
      // All logits at once are the oracle.
      const auto whole = [&](const Array& h, const LoraSlots& slots) {
        const Array logits =
            decoder_logits(s.config, s.base, h, {}, with_slots(slots, s.scales, rows));
        return -cross_entropy(logits, targets);
      };
      EXPECT_LE(distance(loss(hidden, s.slots, chunk), whole(hidden, s.slots)), 1e-5);
      const auto got = grad<0, 1>([&](const Array& h, const LoraSlots& slots) {
        return sum(loss(h, slots, chunk) * weights);
      })(hidden, s.slots);
      const auto expected = grad<0, 1>([&](const Array& h, const LoraSlots& slots) {
        return sum(whole(h, slots) * weights);
      })(hidden, s.slots);
      EXPECT_LE(distance(std::get<0>(got), std::get<0>(expected)), 1e-5) << b << t << chunk;
      EXPECT_LE(distance(std::get<1>(got).head->a, std::get<1>(expected).head->a), 1e-5)
          << b << t << chunk;
      EXPECT_LE(distance(std::get<1>(got).head->b, std::get<1>(expected).head->b), 1e-5)
          << b << t << chunk;
    }
}

LoraSlots gradient(const Setting& s, const Array& tokens, const std::vector<int32_t>& rows,
                   const Array& weights, const PolicyPtr& policy = nullptr) {
  return jit(grad([&](const LoraSlots& slots) {
    ForwardOptions with = with_slots(slots, s.scales, rows);
    with.policy = policy;
    return sum(log_probs(s, tokens, with, 5) * weights);
  }))(s.slots);
}

// Of every array the part of one adapter.
std::vector<Array> parts(const LoraSlots& slots, int64_t slot) {
  std::vector<Array> made;
  const std::vector<std::string> paths = tree_paths(slots);
  const std::vector<Array> leaves = tree_leaves(slots);
  for (size_t i = 0; i < paths.size(); ++i)
    made.push_back(leaves[i].slice(slot_axis(paths[i]), slot - 1, slot));
  return made;
}

TEST(LoraSlots, GradientsAreThoseOfTheAdapterAlone) {
  const Setting s;
  const Array tokens = tokens_of(3, 6), weights = random::normal(random::key(6), {3, 6});
  const std::vector<int32_t> rows = {3, 1, 3};
  const LoraSlots got = gradient(s, tokens, rows, weights);
  for (const int64_t slot : {1, 2, 3}) {
    const auto [lora, config] = alone(s, slot);
    const Lora expected = grad([&, config = config](const Lora& l) {
      Array total = 0.0f;
      for (int64_t b = 0; b < 3; ++b) {
        if (rows[static_cast<size_t>(b)] != slot) continue;
        ForwardOptions with;
        with.lora = l;
        with.lora_config = &config;
        total = total + sum(log_probs(s, tokens.slice(0, b, b + 1), with, 256) *
                            weights.slice(0, b, b + 1));
      }
      return total + sum(l.head->a) * 0.0;
    })(lora);
    Setting of;
    of.slots = got;
    const auto a = tree_leaves(alone(of, slot).first), b = tree_leaves(expected);
    const std::vector<std::string> paths = tree_paths(expected);
    for (size_t i = 0; i < a.size(); ++i) {
      if (slot == 2)
        EXPECT_EQ(max(abs(a[i])).item<float>(), 0) << paths[i];
      else
        EXPECT_LE(distance(a[i], b[i]), 2e-5) << paths[i] << " of " << slot;
    }
  }
}

TEST(LoraSlots, GradientsDoNotDependOnOtherRows) {
  const Setting s;
  const Array weights = random::normal(random::key(6), {6, 6}), tokens = tokens_of(6, 6);
  const auto first = [](const Array& x, int64_t n) { return x.slice(0, 0, n); };
  // Two rows of adapter 1, then 2 or 4 of others.
  const LoraSlots a = gradient(s, first(tokens, 4), {1, 1, 2, 3}, first(weights, 4));
  const LoraSlots b = gradient(s, tokens, {1, 1, 2, 2, 3, 0}, weights);
  const auto x = parts(a, 1), y = parts(b, 1);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(values(x[i]), values(y[i])) << tree_paths(a)[i];
}

TEST(LoraSlots, CheckpointingChangesNoBit) {
  const Setting s;
  const Array tokens = tokens_of(3, 6), weights = random::normal(random::key(6), {3, 6});
  const auto bits = [&](const PolicyPtr& policy) {
    std::vector<float> all;
    for (const Array& leaf : tree_leaves(gradient(s, tokens, {1, 0, 2}, weights, policy)))
      for (const float x : values(leaf)) all.push_back(x);
    return all;
  };
  EXPECT_EQ(bits(nullptr), bits(everything_saveable()));
}

TEST(LoraSlots, RefusesWhatDoesNotGoTogether) {
  Setting s;
  DecoderConfig tied = s.config;
  tied.tied = true;
  EXPECT_THROW(lora_slots_abstract(tied, kSlots), TraceError);
  EXPECT_THROW(lora_slots_abstract(s.config, {.adapters = 0}), TraceError);
  EXPECT_THROW(lora_slots_abstract(s.config, {.adapters = 1 << 30, .max_rank = 1}), TraceError);
  ForwardOptions with = with_slots(s.slots, s.scales, {1, 2});
  s.config.ffn_chunk = 2;
  EXPECT_THROW(forward_layers(s.config, s.base, tokens_of(2, 4), with), TraceError);
  s.config.ffn_chunk = 0;
  const LoraConfig one = lora_config(s.config, {kLoraQ}, 2, 1.0);
  with.lora = lora_init(s.config, one, random::key(1));
  with.lora_config = &one;
  EXPECT_THROW(forward_layers(s.config, s.base, tokens_of(2, 4), with), TraceError);
}

}  // namespace
}  // namespace stow::nn
