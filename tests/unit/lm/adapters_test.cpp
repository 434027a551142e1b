// lm::Adapters: slots taken and given back, passes over mixed batches, steps that change one slot
// alone, files, and memory as planned.
#include "stowage/lm/adapters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "stowage/io/safetensors.h"
#include "stowage/lm/adapter.h"
#include "stowage/lm/score.h"
#include "stowage/stowage.h"
#include "tests/support/lm_kit.h"
#include "tests/support/temporary_folder.h"

namespace stow::lm {
namespace {

using nn::TokenLoss;
using ::testing::HasSubstr;

constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kVocab = 80;

class LmAdapters : public ::testing::Test {
 protected:
  LmAdapters() : device_(Device::virtual_device({256 * kMiB, 64 * kMiB, 64 * kMiB}, 1)) {
    write_lm(folder_.path(), small_lm_config());
  }
  Model model(const WeightOptions& options = {}) {
    Result<Model> model = lm::load(folder_.path(), options, device_);
    STOW_CHECK(model.ok(), "{}", model.error());
    return std::move(*model);
  }
  Adapters adapters(const AdaptersOptions& options = {
                        .slots = 4, .max_rank = 16, .unembed = true}) {
    Result<Adapters> made = Adapters::make(model(), options);
    STOW_CHECK(made.ok(), "{}", made.error());
    return std::move(*made);
  }

  TemporaryFolder folder_;
  DevicePtr device_;
};

// `rows` rows of the formula, from number `first` on, all of one slot.
AdapterBatch batch_of(const std::vector<int32_t>& slots, int64_t length = 9, int64_t first = 0) {
  AdapterBatch batch;
  batch.rows = static_cast<int64_t>(slots.size());
  batch.length = length;
  batch.slot = slots;
  const std::vector<int32_t> all = formula_tokens((first + batch.rows) * (length + 1), kVocab);
  for (int64_t row = first; row < first + batch.rows; ++row)
    for (int64_t t = 0; t < length; ++t) {
      batch.tokens.push_back(all[static_cast<size_t>(row * (length + 1) + t)]);
      batch.targets.push_back(all[static_cast<size_t>(row * (length + 1) + t + 1)]);
    }
  return batch;
}

template <typename T>
T value(Result<T> result) {
  STOW_CHECK(result.ok(), "{}", result.error());
  return std::move(*result);
}
void done(const Result<void>& result) {
  STOW_CHECK(result.ok(), "{}", result.error());
}

std::vector<float> floats(const nn::Lora& lora) {
  std::vector<float> all;
  for (const Array& leaf : tree_leaves(lora))
    for (const float x : leaf.to_vector<float>()) all.push_back(x);
  return all;
}

// The greatest element of what a slot has moved by.
double moved(const Adapters& adapters, int slot, const std::vector<float>& before) {
  const std::vector<float> after = floats(value(adapters.extract(slot)).weights);
  double most = 0;
  for (size_t i = 0; i < after.size(); ++i)
    most = std::max(most, std::abs(double{after[i]} - before[i]));
  return most;
}

// Gives B values, as after some training.
void stir(Adapters& adapters, int slot, uint64_t seed) {
  SlotState state = value(adapters.extract(slot));
  int64_t n = 0;
  state.weights = tree_map(
      [&](const Array& x) {
        return x + random::normal(random::fold_in(random::key(seed), n++), x.shape()) * 0.1;
      },
      state.weights);
  state.optimizer.reset();
  done(adapters.insert(slot, state));
}

TEST_F(LmAdapters, SlotsAreTakenFromTheLowestAndGivenBack) {
  Adapters made = adapters();
  EXPECT_EQ(value(made.create({.seed = 1})), 1);
  EXPECT_EQ(value(made.create({.seed = 2})), 2);
  EXPECT_EQ(value(made.create({.seed = 3})), 3);
  EXPECT_EQ(made.create({}).error(), "Maximum number of LoRA adapters (4) reached");
  done(made.remove(1));
  EXPECT_FALSE(made.contains(1));
  EXPECT_EQ(value(made.create({.seed = 4})), 1);
  done(made.remove(2));
  EXPECT_EQ(value(made.create({.seed = 5})), 2);
  EXPECT_EQ(made.remove(0).error(), "slot 0 is the base, which is not trained");
  EXPECT_EQ(made.remove(9).error(), "there is no adapter in slot 9");
  EXPECT_EQ(made.remove(-1).error(), "there is no adapter in slot -1");
}

TEST_F(LmAdapters, NothingOfADeletedAdapterIsLeft) {
  Adapters made = adapters();
  const std::vector<std::byte> empty = made.bytes(1);
  EXPECT_EQ(std::count(empty.begin(), empty.end(), std::byte{0}),
            static_cast<int64_t>(empty.size()));
  EXPECT_EQ(value(made.create({.rank = 16, .train_unembed = true})), 1);
  const std::vector<std::byte> fresh = made.bytes(1);
  stir(made, 1, 7);
  value(made.forward_backward(batch_of({1, 1})));
  value(made.step(1));
  value(made.forward_backward(batch_of({1})));
  EXPECT_EQ(made.examples(1), 1);
  EXPECT_EQ(made.steps(1), 1);
  done(made.remove(1));
  EXPECT_EQ(made.bytes(1), empty);
  // The next one begins as the first did.
  EXPECT_EQ(value(made.create({.rank = 16, .train_unembed = true})), 1);
  EXPECT_EQ(made.bytes(1), fresh);
  EXPECT_EQ(made.examples(1), 0);
  EXPECT_EQ(made.steps(1), 0);
}

TEST_F(LmAdapters, InitIsOfTheSeedAndTheFanIn) {
  Adapters made = adapters();
  value(made.create({.rank = 8, .alpha = 16, .seed = 3, .train_unembed = true}));
  value(made.create({.rank = 8, .seed = 3}));
  value(made.create({.rank = 8, .seed = 4}));
  const SlotState a = value(made.extract(1)), b = value(made.extract(2)),
                  c = value(made.extract(3));
  EXPECT_EQ(a.weights.layers.w2->a.to_vector<float>(), b.weights.layers.w2->a.to_vector<float>());
  EXPECT_NE(a.weights.layers.w2->a.to_vector<float>(), c.weights.layers.w2->a.to_vector<float>());
  EXPECT_FALSE(b.weights.head.has_value());
  EXPECT_EQ(a.config.layers[0].scales, (std::vector<float>{2, 2}));
  for (const size_t m : {nn::kLoraQ, nn::kLoraDown}) {
    const Array& factor = nn::lora_matrix(a.weights.layers, m)->a;  // [L, r, in]
    const float bound = 1 / std::sqrt(static_cast<float>(factor.dim(2)));
    EXPECT_LE(max(abs(factor)).item<float>(), bound);
    EXPECT_GT(max(abs(factor)).item<float>(), 0.95f * bound);
    EXPECT_EQ(max(abs(nn::lora_matrix(a.weights.layers, m)->b)).item<float>(), 0);
  }
}

TEST_F(LmAdapters, RefusesWhatDoesNotFit) {
  Adapters made = adapters({.slots = 3, .max_rank = 4, .mlp = false});
  EXPECT_THAT(made.create({.rank = 0}).error(), HasSubstr("rank: expected 1 to 4, got 0"));
  EXPECT_THAT(made.create({.rank = 5, .train_mlp = false}).error(),
              HasSubstr("rank: expected 1 to 4, got 5"));
  EXPECT_THAT(made.create({.rank = 2}).error(),
              HasSubstr("train_mlp: these adapters have no slots of mlp"));
  EXPECT_THAT(made.create({.rank = 2, .train_mlp = false, .train_unembed = true}).error(),
              HasSubstr("train_unembed: these adapters have no slots of unembed"));
  EXPECT_THAT(made.create({.rank = 2, .train_attention = false, .train_mlp = false}).error(),
              HasSubstr("got none"));
  EXPECT_EQ(value(made.create({.rank = 2, .train_mlp = false})), 1);
  EXPECT_THAT(made.step(2).error(), HasSubstr("no adapter in slot 2"));
  EXPECT_THAT(made.step(0).error(), HasSubstr("slot 0 is the base"));
  EXPECT_THAT(made.step(1, {.eps = 0}).error(), HasSubstr("eps"));
  EXPECT_THAT(made.step(1, {.beta1 = 1}).error(), HasSubstr("beta1"));
  EXPECT_THAT(made.step(1, {.lr = -1}).error(), HasSubstr("lr"));
  const auto error_of = [&](const auto& change) {
    AdapterBatch batch = batch_of({1, 0});
    change(batch);
    const Result<PassOutput> output = made.forward_backward(batch);
    return output ? std::string("none") : output.error();
  };
  EXPECT_THAT(error_of([](AdapterBatch& b) { b.slot[1] = 2; }),
              HasSubstr("slot: row 1: there is no adapter in slot 2"));
  EXPECT_THAT(error_of([](AdapterBatch& b) { b.slot[1] = -1; }), HasSubstr("slot: row 1"));
  EXPECT_THAT(error_of([](AdapterBatch& b) { b.tokens[10] = 80; }),
              HasSubstr("tokens: 80 at row 1, place 1"));
  EXPECT_THAT(error_of([](AdapterBatch& b) { b.targets.pop_back(); }),
              HasSubstr("targets: expected 18 numbers"));
  EXPECT_THAT(error_of([](AdapterBatch& b) { b.weights.assign(18, std::nanf("")); }),
              HasSubstr("weights"));
  EXPECT_THAT(error_of([](AdapterBatch& b) { b.lo.assign(18, 0); }),
              HasSubstr("positions, lo, hi"));
  EXPECT_THAT(error_of([](AdapterBatch& b) { b.loss.assign(2, {.kind = TokenLoss::kPpo}); }),
              HasSubstr("reference, advantages"));
  EXPECT_THAT(error_of([](AdapterBatch& b) { b.loss.assign(2, {.kind = TokenLoss::kDpo}); }),
              HasSubstr("row 0: expected one chosen row"));
  EXPECT_THAT(error_of([](AdapterBatch& b) {
                b.loss = {{.kind = TokenLoss::kDpo, .rejected = 1}, {.kind = TokenLoss::kDpo}};
              }),
              HasSubstr("row 0: expected a rejected row of the same slot and kind"));
  EXPECT_EQ(made.examples(1), 0);
  HfConfig tied = small_lm_config();
  tied.tie_word_embeddings = true;
  write_lm(folder_.path(), tied);
  EXPECT_THAT(Adapters::make(model(), {.unembed = true}).error(),
              HasSubstr("train_unembed with tied embeddings"));
  Adapters without = value(Adapters::make(model(), {}));
  EXPECT_THAT(without.create({.train_unembed = true}).error(),
              HasSubstr("train_unembed with tied embeddings"));
}

// Rows of the base score as the model does, and an adapter as the same one loaded from its PEFT
// folder.
TEST_F(LmAdapters, RowsScoreAsTheirAdaptersFromFilesDo) {
  Adapters made = adapters();
  value(made.create({.rank = 8, .seed = 1, .train_unembed = true}));
  value(made.create({.rank = 3, .alpha = 5, .seed = 2, .train_mlp = false}));
  stir(made, 1, 11);
  stir(made, 2, 12);
  const AdapterBatch batch = batch_of({2, 0, 1});
  const PassOutput output = value(made.forward(batch));
  for (const int slot : {0, 1, 2}) {
    WeightOptions options;
    const std::string path = folder_ / fmt::format("adapter-{}", slot);
    if (slot > 0) {
      done(made.save(slot, path));
      const ModelFiles files = value(ModelFiles::open(folder_.path()));
      options.adapter = std::make_shared<const AdapterFiles>(
          value(AdapterFiles::open(path, files.config, files.weights.get())));
    }
    const size_t row = slot == 0 ? 1 : (slot == 1 ? 2 : 0);
    std::vector<int32_t> tokens(batch.tokens.begin() + static_cast<std::ptrdiff_t>(9 * row),
                                batch.tokens.begin() + static_cast<std::ptrdiff_t>(9 * row + 9));
    tokens.push_back(batch.targets[9 * row + 8]);
    const std::vector<float> expected = score(model(options), whole_rows({tokens})).logprobs;
    ASSERT_EQ(expected.size(), 9u);
    for (size_t t = 0; t < 9; ++t)
      EXPECT_NEAR(output.logprobs[9 * row + t], expected[t], 1e-5) << slot;
  }
  // A and B of the file are those of the slot.
  const SafetensorsFile file =
      value(SafetensorsFile::open(folder_ / "adapter-1" + "/adapter_model.safetensors"));
  const SlotState state = value(made.extract(1));
  const TensorInfo* tensor =
      file.find("base_model.model.model.layers.1.mlp.down_proj.lora_B.weight");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->shape, (std::vector<int64_t>{32, 8}));
  std::vector<float> stored(static_cast<size_t>(tensor->n_bytes) / 4);
  done(file.read(*tensor, std::as_writable_bytes(std::span(stored))));
  const std::vector<float> own = state.weights.layers.w2->b.to_vector<float>();
  EXPECT_EQ(stored, std::vector<float>(own.begin() + 32 * 8, own.end()));
  // Loaded again, it takes the lowest slot with the same bits.
  Adapters again = adapters();
  EXPECT_EQ(value(again.load(folder_ / "adapter-1")), 1);
  EXPECT_EQ(again.bytes(1), made.bytes(1));
  Adapters narrow = adapters({.slots = 2, .max_rank = 4, .unembed = true});
  EXPECT_THAT(narrow.load(folder_ / "adapter-1").error(),
              HasSubstr("expected ranks up to 4, got 8"));
  Adapters part = adapters({.slots = 2});
  EXPECT_THAT(part.load(folder_ / "adapter-1").error(), HasSubstr("no slots of embed/a"));
}

// The mean of the slot's examples, whoever else is in the batch and however it is cut.
TEST_F(LmAdapters, MicrobatchesAndOtherRowsLeaveTheMeanGradient) {
  const std::vector<int32_t> rows = {1, 2, 2, 1, 2, 2};
  std::vector<std::vector<std::byte>> bytes;
  std::vector<double> norms;
  for (const int64_t microbatch : {0, 4, 1}) {
    Adapters made =
        adapters({.slots = 3, .max_rank = 8, .unembed = true, .microbatch = microbatch});
    value(made.create({.rank = 8, .seed = 1, .train_unembed = true}));
    value(made.create({.rank = 4, .seed = 2}));
    stir(made, 1, 3);
    stir(made, 2, 4);
    const PassOutput output = value(made.forward_backward(batch_of(rows)));
    EXPECT_EQ(output.logprobs.size(), 54u);
    EXPECT_EQ(output.rows.size(), 6u);
    EXPECT_EQ(made.examples(1), 2);
    EXPECT_EQ(made.examples(2), 4);
    const std::vector<float> before = floats(value(made.extract(1)).weights);
    norms.push_back(value(made.step(1, {.lr = 1e-2})).grad_norm);
    EXPECT_EQ(made.examples(1), 0);
    EXPECT_EQ(made.examples(2), 4);
    EXPECT_GT(moved(made, 1, before), 5e-3);
    norms.push_back(value(made.step(2)).grad_norm);
  }
  for (size_t i = 2; i < norms.size(); ++i)
    EXPECT_NEAR(norms[i], norms[i % 2], 1e-5 * norms[i % 2]);
}

TEST_F(LmAdapters, AGradientIsThatOfTheRowsOfTheSlot) {
  const auto bytes_of = [&](const std::vector<int32_t>& rows) {
    Adapters made = adapters({.slots = 3, .max_rank = 8});
    value(made.create({.rank = 8, .seed = 1}));
    value(made.create({.rank = 8, .seed = 2}));
    stir(made, 1, 3);
    value(made.forward_backward(batch_of(rows)));
    EXPECT_EQ(made.examples(1), 2);
    return made.bytes(1);
  };
  const std::vector<std::byte> two = bytes_of({1, 1, 2, 2});
  EXPECT_EQ(bytes_of({1, 1, 2, 2, 2, 2}), two);
  EXPECT_EQ(bytes_of({1, 1, 0}), two);
}

// Ten steps of two ranks: the third slot and what lies beyond a rank stay as they were, moments
// too.
TEST_F(LmAdapters, OnlyTheSteppedSlotChanges) {
  Adapters made = adapters();
  value(made.create({.rank = 16, .seed = 1, .train_unembed = true}));
  value(made.create({.rank = 8, .seed = 2, .train_unembed = true}));
  value(made.create({.rank = 8, .seed = 3}));
  stir(made, 3, 5);
  value(made.forward_backward(batch_of({3, 3})));
  value(made.step(3, {.weight_decay = 0.1}));
  value(made.forward_backward(batch_of({3})));  // and a gradient that waits
  const std::vector<std::byte> third = made.bytes(3);
  for (int64_t i = 0; i < 10; ++i) {
    value(made.forward_backward(batch_of({1, 2, 0, 2}, 9, i)));
    for (const int slot : {1, 2}) {
      const int other = 3 - slot;
      const std::vector<std::byte> before = made.bytes(other), own = made.bytes(slot);
      const AdapterStep step = value(made.step(slot, {.lr = 1e-2, .weight_decay = 0.1}));
      EXPECT_GT(step.grad_norm, 0);
      EXPECT_EQ(step.examples, slot);
      EXPECT_EQ(made.bytes(other), before);
      EXPECT_NE(made.bytes(slot), own);
    }
  }
  EXPECT_EQ(made.bytes(3), third);
  EXPECT_EQ(made.steps(1), 10);
  EXPECT_EQ(made.steps(3), 1);
  // Written back, the state of rank 8 is all that there is of the slot: zeros beyond.
  const std::vector<std::byte> trained = made.bytes(2);
  done(made.insert(2, value(made.extract(2))));
  EXPECT_EQ(made.bytes(2), trained);
}

// A slot whose numbers overflow, in a batch with another one that has the head as well.
TEST_F(LmAdapters, WhatIsNotFiniteStaysInItsSlot) {
  Adapters made = adapters({.slots = 4, .max_rank = 8, .unembed = true}),
           alone = adapters({.slots = 4, .max_rank = 8, .unembed = true});
  for (Adapters* of : {&made, &alone})
    for (const uint64_t seed : {1u, 2u, 3u}) {
      value(of->create({.rank = 8, .seed = seed, .train_unembed = true}));
      stir(*of, static_cast<int>(seed), seed);
    }
  const auto overflow = [&] {
    SlotState state = value(made.extract(1));
    state.weights = tree_map([](const Array& x) { return x * 1e30; }, state.weights);
    done(made.insert(1, state));
  };
  const AdapterBatch mixed = batch_of({1, 2, 0, 3}), healthy = batch_of({2, 2, 0, 3});
  const auto at = [](const std::vector<float>& all, size_t row) {
    return std::vector<float>(all.begin() + static_cast<std::ptrdiff_t>(9 * row),
                              all.begin() + static_cast<std::ptrdiff_t>(9 * row + 9));
  };
  overflow();
  for (int i = 0; i < 3; ++i) {
    AdapterBatch batch = mixed, same = healthy;
    if (i > 0) {  // a loss that overflows although the log-probabilities do not
      for (AdapterBatch* one : {&batch, &same}) {
        one->loss.assign(4, {.kind = i == 1 ? TokenLoss::kImportanceSampling : TokenLoss::kPpo});
        one->reference.assign(36, -300.0f);
        one->advantages.assign(36, 0.5f);
        for (size_t k = 9; k < 36; ++k) one->reference[k] = -3.0f;
      }
      if (i == 1) {
        done(made.remove(1));
        value(made.create({.rank = 8, .seed = 1, .train_unembed = true}));
      } else {
        for (size_t k = 0; k < 9; ++k) batch.advantages[k] = -3e38f, same.advantages[k] = 0.5f;
      }
    }
    same.slot[0] = nn::kBaseSlot;
    const PassOutput got = value(made.forward_backward(batch)),
                     want = value(alone.forward_backward(same));
    EXPECT_FALSE(std::isfinite(got.rows[0])) << i;
    for (size_t row = 1; row < 4; ++row)
      EXPECT_EQ(at(got.logprobs, row), at(want.logprobs, row)) << i;
    const std::vector<std::byte> own = made.bytes(1);
    const Result<AdapterStep> refused = made.step(1);
    ASSERT_FALSE(refused.ok()) << i;
    EXPECT_THAT(refused.error(), HasSubstr("slot 1: a row of it had a loss that is not finite"));
    EXPECT_EQ(made.examples(1), 0);
    for (const int slot : {2, 3}) {
      const AdapterStep a = value(made.step(slot, {.lr = 1e-3})),
                        b = value(alone.step(slot, {.lr = 1e-3}));
      EXPECT_EQ(a.grad_norm, b.grad_norm) << i;
      EXPECT_GT(a.grad_norm, 0) << i;
      EXPECT_EQ(made.bytes(slot), alone.bytes(slot)) << i;
    }
    // Weights and moments of the refused step are as they were, and the gradient is gone.
    value(made.forward_backward(batch_of({2})));
    value(alone.forward_backward(batch_of({2})));
    EXPECT_EQ(value(made.step(1)).examples, 0);
  }
  // Weights that are not finite come in by no way.
  SlotState state = value(made.extract(2));
  const std::vector<std::byte> before = made.bytes(2);
  state.weights = tree_map([](const Array& x) { return x / 0.0f; }, state.weights);
  EXPECT_THAT(made.insert(2, state).error(), HasSubstr("expected finite weights and moments"));
  EXPECT_EQ(made.bytes(2), before);
  AdapterBatch batch = batch_of({2});
  batch.loss = {{.kind = TokenLoss::kCispo}};
  batch.reference.assign(9, 0.0f);
  batch.advantages.assign(9, std::numeric_limits<float>::quiet_NaN());
  EXPECT_THAT(made.forward_backward(batch).error(),
              HasSubstr("advantages: expected finite numbers"));
}

TEST_F(LmAdapters, AStepIsAdamW) {
  Adapters made = adapters({.slots = 3, .max_rank = 4});
  value(made.create({.rank = 4, .seed = 1}));
  stir(made, 1, 2);
  const double b1 = 0.8, b2 = 0.9, eps = 1e-6, decay = 0.1, lr = 3e-3;
  std::vector<float> p = floats(value(made.extract(1)).weights);
  std::vector<double> mu(p.size()), nu(p.size());
  for (int t = 1; t <= 3; ++t) {
    value(made.forward_backward(batch_of({1, 0, 1}, 9, t)));
    // What the sums hold shows in a slot of the same weights that steps without moments.
    Adapters probe = adapters({.slots = 2, .max_rank = 4});
    value(probe.create({.rank = 4}));
    SlotState state = value(made.extract(1));
    state.optimizer.reset();
    done(probe.insert(1, state));
    value(probe.forward_backward(batch_of({1, 0, 1}, 9, t)));
    const double probe_norm = value(probe.step(1, {.beta1 = 0, .beta2 = 0})).grad_norm;
    // With beta1 = 0 this is the mean gradient.
    const std::vector<float> g = floats(value(probe.extract(1)).optimizer->mu);
    double square = 0;
    for (const float x : g) square += double{x} * x;
    const AdapterStep step = value(made.step(1, {lr, b1, b2, eps, decay}));
    EXPECT_NEAR(step.grad_norm, std::sqrt(square), 1e-5 * std::sqrt(square));
    EXPECT_NEAR(probe_norm, step.grad_norm, 1e-6 * probe_norm);
    EXPECT_EQ(step.lr, lr);
    const std::vector<float> after = floats(value(made.extract(1)).weights);
    for (size_t i = 0; i < p.size(); ++i) {
      mu[i] = b1 * mu[i] + (1 - b1) * g[i];
      nu[i] = b2 * nu[i] + (1 - b2) * g[i] * g[i];
      const double m = mu[i] / (1 - std::pow(b1, t)), v = nu[i] / (1 - std::pow(b2, t));
      ASSERT_NEAR(after[i], p[i] - lr * (m / (std::sqrt(v) + eps) + decay * p[i]), 2e-6)
          << t << " " << i;
    }
    p = after;
  }
}

TEST_F(LmAdapters, LearningRatesAreOfTheStep) {
  std::vector<double> updates;
  for (const double lr : {1e-8, 1e-4}) {
    Adapters made = adapters({.slots = 2, .max_rank = 8});
    value(made.create({.rank = 8}));
    value(made.forward_backward(batch_of({1, 1})));
    value(made.step(1, {.lr = lr}));
    // B was zero, so that its update is not rounded away.
    updates.push_back(max(abs(value(made.extract(1)).weights.layers.wq->b)).item<float>());
  }
  EXPECT_NEAR(updates[1] / updates[0], 1e4, 1);
}

TEST_F(LmAdapters, AStepWithoutGradientsDoesNothing) {
  Adapters made = adapters({.slots = 2});
  value(made.create({}));
  const std::vector<std::byte> before = made.bytes(1);
  const AdapterStep step = value(made.step(1, {.lr = 0.5, .weight_decay = 0.1}));
  EXPECT_EQ(step.grad_norm, 0);
  EXPECT_EQ(step.examples, 0);
  EXPECT_EQ(step.lr, 0.5);
  EXPECT_EQ(made.bytes(1), before);
  EXPECT_EQ(made.steps(1), 0);
  // Nor do scores, or rows of the base.
  value(made.forward(batch_of({1})));
  value(made.forward_backward(batch_of({0})));
  EXPECT_EQ(made.bytes(1), before);
}

// A batch of all losses gives each row what it gives alone.
TEST_F(LmAdapters, LossesMixInABatch) {
  Adapters made = adapters({.slots = 3, .max_rank = 8, .unembed = true});
  value(made.create({.rank = 8, .seed = 1, .train_unembed = true}));
  value(made.create({.rank = 8, .seed = 2}));
  stir(made, 1, 3);
  stir(made, 2, 4);
  AdapterBatch batch = batch_of({1, 2, 1, 2, 2, 2});
  batch.loss = {{},
                {.kind = TokenLoss::kImportanceSampling},
                {.kind = TokenLoss::kPpo},
                {.kind = TokenLoss::kCispo},
                {.kind = TokenLoss::kDpo, .rejected = 5},
                {.kind = TokenLoss::kDpo}};
  const std::vector<float> base = value(made.forward(batch_of({0, 0, 0, 0, 0, 0}))).logprobs;
  batch.reference = base;
  batch.advantages.assign(54, 0.5f);
  const PassOutput all = value(made.forward_backward(batch));
  EXPECT_EQ(made.examples(1), 2);
  EXPECT_EQ(made.examples(2), 3);  // of the pair one
  EXPECT_EQ(value(made.forward(batch)).rows, all.rows);
  const auto at = [](size_t row, size_t t) { return 9 * row + t; };
  double margin = 0;
  for (size_t t = 0; t < 9; ++t) {
    const auto ratio = [&](size_t row) {
      return std::exp(all.logprobs[at(row, t)] - base[at(row, t)]);
    };
    EXPECT_EQ(all.tokens[at(0, t)], -all.logprobs[at(0, t)]);
    EXPECT_NEAR(all.tokens[at(1, t)], -0.5 * ratio(1), 1e-4);
    EXPECT_NEAR(all.tokens[at(2, t)], -0.5 * std::min(ratio(2), 1.2f), 1e-5);
    EXPECT_NEAR(all.tokens[at(3, t)],
                -0.5 * std::clamp(ratio(3), 0.8f, 1.2f) * all.logprobs[at(3, t)], 1e-4);
    margin += (all.logprobs[at(4, t)] - base[at(4, t)]) - (all.logprobs[at(5, t)] - base[at(5, t)]);
  }
  EXPECT_GT(std::abs(margin), 1e-2);
  EXPECT_NEAR(all.rows[4], std::log1p(std::exp(-0.1 * margin)), 1e-5);
  EXPECT_EQ(all.rows[5], 0);
  // Training by it makes the chosen row likelier than the rejected one.
  const auto margin_now = [&] {
    const std::vector<float> now = value(made.forward(batch)).logprobs;
    double sum = 0;
    for (size_t t = 0; t < 9; ++t) sum += now[at(4, t)] - now[at(5, t)];
    return sum;
  };
  AdapterBatch pair = batch_of({2, 2}, 9, 4);
  pair.loss = {{.kind = TokenLoss::kDpo, .rejected = 1}, {.kind = TokenLoss::kDpo}};
  value(made.step(2));
  const double before = margin_now();
  for (int i = 0; i < 5; ++i) {
    value(made.forward_backward(pair));
    value(made.step(2, {.lr = 5e-3}));
  }
  EXPECT_GT(margin_now(), before + 0.1);
}

// Padding on either side, as with the trainer's batches.
TEST_F(LmAdapters, RowsOfVisibleIntervalsAreThoseWithoutPadding) {
  Adapters made = adapters({.slots = 2, .max_rank = 4});
  value(made.create({.rank = 4}));
  stir(made, 1, 2);
  const AdapterBatch whole = batch_of({1}, 6);
  const PassOutput expected = value(made.forward(whole));
  for (const int32_t start : {0, 3}) {
    AdapterBatch padded;
    padded.rows = 1;
    padded.length = 9;
    padded.slot = {1};
    for (int32_t t = 0; t < 9; ++t) {
      const bool real = t >= start && t < start + 6;
      const auto at = static_cast<size_t>(real ? t - start : 0);
      padded.tokens.push_back(real ? whole.tokens[at] : 0);
      padded.targets.push_back(real ? whole.targets[at] : 0);
      padded.weights.push_back(real ? 1 : 0);
      padded.positions.push_back(real ? t - start : 0);
      padded.lo.push_back(real ? start : 0);
      padded.hi.push_back(real ? start + 6 : 0);
    }
    const PassOutput output = value(made.forward_backward(padded));
    for (size_t t = 0; t < 6; ++t)
      EXPECT_NEAR(output.logprobs[static_cast<size_t>(start) + t], expected.logprobs[t], 1e-5);
    EXPECT_NEAR(output.rows[0], expected.rows[0], 1e-5);
    EXPECT_GT(value(made.step(1, {.lr = 0})).grad_norm, 0);
  }
}

TEST_F(LmAdapters, StatesGoThroughFilesAndSlots) {
  Adapters made = adapters({.slots = 4, .max_rank = 16, .unembed = true});
  value(made.create({.rank = 8, .seed = 1, .train_unembed = true}));
  value(made.create({.rank = 8, .seed = 2, .train_unembed = true}));
  value(made.create({.rank = 4, .seed = 3, .train_unembed = true}));
  stir(made, 1, 3);
  value(made.forward_backward(batch_of({1, 1})));
  value(made.step(1));
  const std::string path = folder_ / "slot.safetensors";
  done(value(made.extract(1)).save(path));
  const SlotState state = value(SlotState::load(path, small_lm_config()));
  done(made.insert(2, state));
  EXPECT_EQ(made.bytes(2), made.bytes(1));
  EXPECT_EQ(made.steps(2), 1);
  // They go on alike.
  value(made.forward_backward(batch_of({1})));
  value(made.forward_backward(batch_of({2})));
  value(made.step(1));
  value(made.step(2));
  EXPECT_EQ(made.bytes(2), made.bytes(1));
  EXPECT_EQ(made.insert(3, state).error(), "expected a state of rank 4, as slot 3 has, got rank 8");
  Adapters other = adapters({.slots = 2, .max_rank = 8});
  value(other.create({.rank = 8}));
  EXPECT_THAT(other.insert(1, state).error(), HasSubstr("other matrices"));
  SlotState odd = state;
  odd.optimizer->mu.layers.wq->a = zeros({1});
  EXPECT_THAT(made.insert(2, odd).error(), HasSubstr("not those of its configuration"));
  // Without the optimizer the moments begin again.
  SlotState weights = state;
  weights.optimizer.reset();
  done(weights.save(path));
  done(made.insert(2, value(SlotState::load(path, small_lm_config()))));
  EXPECT_EQ(made.steps(2), 0);
  EXPECT_EQ(floats(value(made.extract(2)).weights), floats(state.weights));
  EXPECT_EQ(max(abs(value(made.extract(2)).optimizer->mu.layers.wq->b)).item<float>(), 0);
}

TEST_F(LmAdapters, DamagedStatesAreRefused) {
  Adapters made = adapters({.slots = 2, .max_rank = 8});
  value(made.create({.rank = 8}));
  const std::string path = folder_ / "slot.safetensors";
  done(value(made.extract(1)).save(path));
  HfConfig wider = small_lm_config();
  wider.intermediate_size += 8;
  EXPECT_THAT(SlotState::load(path, wider).error(),
              HasSubstr("layers/w1/b: expected f32[2,56,8], got f32[2,48,8]"));
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 4);
  EXPECT_THAT(SlotState::load(path, small_lm_config()).error(), HasSubstr(path));
  const std::vector<float> x(8);
  const auto write = [&](const std::string& name, std::map<std::string, std::string> metadata) {
    const TensorBytes tensor{name, DType::kF32, {8}, std::as_bytes(std::span(x)), {}};
    done(save_safetensors(path, std::vector<TensorBytes>{tensor}, metadata));
    return SlotState::load(path, small_lm_config()).error();
  };
  EXPECT_THAT(write("weights/embed/a", {}), HasSubstr("expected the state of an adapter"));
  EXPECT_THAT(write("weights/embed/a", {{"format", "stowage-adapter-1"}}),
              HasSubstr("weights/embed/a: expected a rank"));
  EXPECT_THAT(write("weight", {{"format", "stowage-adapter-1"}}),
              HasSubstr("the tensor weight does not belong"));
  EXPECT_THAT(write("weight", {{"format", "stowage-adapter-1"}, {"steps", "-1"}}),
              HasSubstr("steps"));
}

// Predicted is measured. Sums of gradients are added to in place, layer by layer: beside arguments
// a pass holds less than one layer's slots. A step holds a few times one slot, not all.
TEST_F(LmAdapters, MemoryIsAsPlanned) {
  constexpr int64_t kAdapters = 32;
  for (const auto& [kind, pairs] :
       {std::pair(MemoryKind::kDevice, false), std::pair(MemoryKind::kDisk, true)}) {
    device_ = Device::virtual_device({256 * kMiB, 64 * kMiB, 64 * kMiB}, 1);
    Adapters made = value(Adapters::make(
        model({.memory = kind}), {.slots = kAdapters + 1, .max_rank = 32, .unembed = true}));
    value(made.create({.rank = 8, .train_unembed = true}));
    AdapterBatch batch = batch_of({1, 1});
    if (pairs) batch.loss = {{.kind = TokenLoss::kDpo, .rejected = 1}, {.kind = TokenLoss::kDpo}};
    const PassShape shape{2, 9, false, pairs, true};
    const BytesByKind predicted = made.peak_bytes(shape);
    device_->reset_high_water();
    for (int i = 0; i < 2; ++i) {
      value(made.forward_backward(batch));
      value(made.step(1));
    }
    EXPECT_EQ(measured_peaks(*device_), predicted);
    const int64_t slot_bytes = static_cast<int64_t>(made.bytes(1).size()) / 4;
    const auto pass = made.plan(shape).device(), step = made.step_plan().device();
    EXPECT_GE(pass.alias_bytes, kAdapters * slot_bytes / 100 * 99);
    EXPECT_LT(pass.temp_bytes, kAdapters * slot_bytes / small_lm_config().num_hidden_layers);
    EXPECT_GE(step.alias_bytes, kAdapters * 4 * slot_bytes / 100 * 99);
    EXPECT_LT(step.temp_bytes, 6 * slot_bytes);
  }
}

// Of all slots but the stepped one nothing of the moments is on the device.
TEST_F(LmAdapters, MomentsElsewhereGiveTheSameBitsInLess) {
  std::vector<std::byte> want;
  int64_t most = 0;
  for (const MemoryKind kind : {MemoryKind::kDevice, MemoryKind::kPinnedHost, MemoryKind::kDisk}) {
    device_ = Device::virtual_device({256 * kMiB, 64 * kMiB, 64 * kMiB}, 1);
    Adapters made = adapters({.slots = 17, .max_rank = 16, .unembed = true, .moments = kind});
    value(made.create({.rank = 16, .seed = 1, .train_unembed = true}));
    value(made.create({.rank = 8, .seed = 2}));
    const PassShape shape{2, 9, false, false, true};
    const BytesByKind predicted = made.peak_bytes(shape);
    device_->reset_high_water();
    for (int i = 0; i < 3; ++i) {
      value(made.forward_backward(batch_of({1, 2}, 9, i)));
      for (const int slot : {1, 2}) value(made.step(slot, {.lr = 1e-2, .weight_decay = 0.1}));
    }
    EXPECT_EQ(measured_peaks(*device_), predicted) << memory_kind_name(kind);
    std::vector<std::byte> got = made.bytes(1);
    for (const std::byte b : made.bytes(2)) got.push_back(b);
    if (want.empty()) {
      want = got;
      most = predicted[0];
    }
    EXPECT_EQ(got, want) << memory_kind_name(kind);
    if (kind != MemoryKind::kDevice) {
      EXPECT_LT(predicted[0], most - 16 * static_cast<int64_t>(made.bytes(1).size()) / 4);
    }
    // A state that is taken out and put back is the same.
    const std::vector<std::byte> before = made.bytes(1);
    done(made.insert(1, value(made.extract(1))));
    EXPECT_EQ(made.bytes(1), before);
    done(made.remove(1));
    EXPECT_EQ(value(made.create({.rank = 16, .seed = 1, .train_unembed = true})), 1);
  }
}

// The base is there once: preference against it costs log-probabilities, not weights.
TEST_F(LmAdapters, TheReferenceOfPairsIsNoSecondCopy) {
  Adapters made = adapters({.slots = 2, .max_rank = 8});
  const int64_t plain = made.plan({4, 9, false, false, true}).device().total_bytes;
  const int64_t pairs = made.plan({4, 9, false, true, true}).device().total_bytes;
  EXPECT_LT(pairs - plain, weight_bytes(small_lm_config(), {})[0] / 8);
}

}  // namespace
}  // namespace stow::lm
