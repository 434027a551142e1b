// A model of vectors alone through the trainer: no matrices, no layers, no logits. It trains,
// plans, is refused and resumes to the bit with AdamW; Muon, which has nothing to take, is refused.
// The test of VectorModelOnEachTarget runs on the host's target and on OtherTarget, the others on
// the host's alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "stowage/stowage.h"
#include "stowage/train/data.h"
#include "stowage/train/placements.h"
#include "stowage/train/step_run.h"
#include "stowage/train/trainer.h"
#include "tests/support/message_of.h"
#include "tests/support/training_fixture.h"

namespace stow {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

using testing::joined_losses;
using testing::Outcome;

constexpr int64_t kRows = 256, kWidth = 64;

// Points x in [-1, 1) and 1.5 x - 0.5.
class Lines : public TrainData {
 public:
  explicit Lines(int64_t n_rows) : n_rows_(n_rows) {}
  HostBatch train_batch(uint64_t seed, int64_t step) const override {
    return rows_of(seed, step, n_rows_);
  }
  int64_t n_validation_batches() const override { return 2; }
  HostBatch validation_batch(int64_t i) const override { return train_batch(1u << 20, i); }
  std::string digest() const override { return "lines"; }

  static HostBatch rows_of(uint64_t seed, int64_t step, int64_t n_rows) {
    std::vector<float> x, y;
    for (int64_t i = 0; i < n_rows * kWidth; ++i) {
      const uint64_t bits = mix_bits(seed, static_cast<uint64_t>(step), static_cast<uint64_t>(i));
      x.push_back(static_cast<float>(bits >> 40) * 0x1p-23f - 1);
      y.push_back(1.5f * x.back() - 0.5f);
    }
    return {{bytes_of(x), bytes_of(y)}};
  }

 private:
  int64_t n_rows_;
};

// x * scale + shift, each a vector of all features.
class Vectors : public TrainModel {
 public:
  explicit Vectors(const TrainConfig& config) : n_rows_(config.data.batch) {}

  NamedArrays parameters() const override {
    NamedArrays p;
    p.add("scale", Array::abstract(Shape{kWidth}));
    p.add("shift", Array::abstract(Shape{kWidth}));
    return p;
  }
  bool reaches_layers(std::string_view /*path*/) const override { return false; }
  NamedArrays init(const Array& /*key*/) const override {
    NamedArrays p;
    p.add("scale", ones({kWidth}));
    p.add("shift", zeros({kWidth}));
    return p;
  }
  NamedArrays batch(size_t) const override {
    NamedArrays b;
    b.add("x", Array::abstract(Shape{n_rows_, kWidth}));
    b.add("y", Array::abstract(Shape{n_rows_, kWidth}));
    return b;
  }
  Array loss(const ModelArrays& model, const NamedArrays& b, const LossForm&) const override {
    const Array scale = device_put(model.parameters.arrays[0], MemoryKind::kDevice);
    const Array shift = device_put(model.parameters.arrays[1], MemoryKind::kDevice);
    return mean(square(b.arrays[0] * scale + shift - b.arrays[1]));
  }
  std::string describe() const override { return "two vectors"; }
  ModelSizes sizes() const override { return {}; }
  std::string loss_unit() const override { return "mean squared error"; }
  Result<std::unique_ptr<TrainData>> open_data() const override {
    return std::unique_ptr<TrainData>(std::make_unique<Lines>(n_rows_));
  }

 protected:
  int64_t n_rows_;
};

TrainModelPtr vectors(const TrainConfig& config) {
  return std::make_shared<const Vectors>(config);
}

// The same with a batch for measurements, words for it, and no data.
class VectorsWithoutData : public Vectors {
 public:
  using Vectors::Vectors;
  std::optional<HostBatch> random_batch(uint64_t seed) const override {
    return Lines::rows_of(seed, 0, n_rows_);
  }
  std::string describe_batch() const override { return fmt::format("{} points", n_rows_); }
  Result<std::unique_ptr<TrainData>> open_data() const override { return fail("there is no data"); }
};
TrainModelPtr vectors_without_data(const TrainConfig& config) {
  return std::make_shared<const VectorsWithoutData>(config);
}

// Stacks of vectors, one a layer: arrays of two axes that are no matrices.
class StacksOfVectors : public Vectors {
 public:
  using Vectors::Vectors;
  NamedArrays parameters() const override {
    NamedArrays p;
    p.add("layers/scale", Array::abstract(Shape{4, kWidth}));
    p.add("layers/shift", Array::abstract(Shape{4, kWidth}));
    return p;
  }
  std::vector<WeightAxis> axes_of(std::string_view /*path*/) const override {
    return {{"layers", 4}, {}};
  }
};

class VectorModel : public testing::TrainingFixture {
 protected:
  VectorModel() : TrainingFixture(1) {}

  TrainConfig config(const std::string& name, int64_t steps) const {
    TrainConfig c = config_without_data(name, steps, kRows);
    c.optimizer.lr = 0.05;
    return c;
  }

  Outcome train(const TrainConfig& c, std::optional<int64_t> budget = {}, bool resume = false) {
    return train_to_its_end(Job(c, target(), vectors), budget, resume);
  }
};

using VectorModelOnEachTarget = testing::OnEachTarget<VectorModel>;
INSTANTIATE_TEST_SUITE_P(, VectorModelOnEachTarget, testing::each_target(), testing::target_name);

TEST_P(VectorModelOnEachTarget, LearnsAndResumesToTheBit) {
  const Outcome whole = train(config("whole", 8));
  const double first_loss = *whole.summary.find("first_loss")->as_double();
  EXPECT_LT(*whole.summary.find("last_loss")->as_double(), 0.8 * first_loss);
  EXPECT_LT(*whole.summary.find("validation_loss")->as_double(), 0.8 * first_loss);
  const Outcome first = train(config("parts", 4));
  const Outcome second = train(config("parts", 8), {}, true);
  EXPECT_EQ(whole.losses.size(), 8u);
  EXPECT_EQ(joined_losses(first, second), whole.losses);
}

TEST_F(VectorModel, StateOnTheHostAndPoliciesChangeNoBit) {
  const std::vector<std::string> losses = train(config("auto", 2)).losses;
  EXPECT_EQ(losses.size(), 2u);
  for (const std::string policy : {"save_all", "recompute", "nested"}) {
    TrainConfig c = config(policy, 2);
    c.memory.policy = policy;
    EXPECT_EQ(train(c).losses, losses) << policy;
  }
  TrainConfig c = config("host", 2);
  c.runtime.platform = "virtual";
  c.memory.optimizer = c.memory.parameters = "pinned_host";
  const Outcome host = train(c);
  EXPECT_EQ(host.losses, losses);
  EXPECT_GT(*host.summary.find("measured_peak_bytes")->find("pinned_host")->as_int(), 0);
}

// There are no layers to offload or to compute in chunks, and no logits.
TEST_F(VectorModel, NothingOfLayersIsTried) {
  TrainConfig c = config("planned", 1);
  c.runtime.platform = "virtual";
  const Job job(c, 1, vectors);
  const Choice choice = choose_plan(job, budgets_of(c, 1));
  EXPECT_FALSE(choice.plan);
  EXPECT_FALSE(choice.candidates.empty());
  for (const Candidate& candidate : choice.candidates) {
    const Placement& p = candidate.placement;
    EXPECT_FALSE(traits_of(p.policy).offloads || p.chunked || p.chunked_loss) << to_string(p);
  }
  c.memory.policy = "offload_carries";
  EXPECT_THAT(message_of([&] { Job(c, 1, vectors); }),
              HasSubstr("memory.policy = offload_carries has no effect: the backward pass does not "
                        "reach the layers; set memory.policy=auto"));
}

TEST_F(VectorModel, IsRefusedWithRemediesThatItHas) {
  const TrainConfig c = config("refused", 2);
  const Job job(c, 1, vectors);
  const Budgets budgets = budgets_of(c, 1);
  const Choice refused = choose_plan(job, budgets);
  ASSERT_FALSE(refused.plan);
  const std::vector<Shortfall> near = shortfalls(job, refused, budgets);
  ASSERT_TRUE(near[0].is_enough);
  const int64_t least = near[0].needed_bytes[0];
  const std::vector<Remedy> remedies = refusal_remedies(job, refused, near, budgets);
  const std::string text = describe_refusal(job, refused, near, remedies, budgets);
  EXPECT_THAT(text, HasSubstr(fmt::format("({} bytes)", least)));
  for (const std::string of_others : {"train.loss_chunk", "train.vocab_block", "memory.loss",
                                      "memory.feed_forward", "model.", "data.seq"})
    EXPECT_THAT(text, Not(HasSubstr("--set " + of_others)));
  const auto half = std::find_if(remedies.begin(), remedies.end(), [](const Remedy& r) {
    return r.change.starts_with("--set data.batch=128 (");
  });
  ASSERT_NE(half, remedies.end()) << text;
  EXPECT_LT(half->peak_bytes, least);
  EXPECT_TRUE(half->changes_numbers);
  EXPECT_EQ(train(c, least).losses.size(), 2u);
}

TEST_F(VectorModel, MuonHasNothingToTake) {
  TrainConfig c = config("muon", 1);
  c.optimizer.name = "muon";
  const auto expect_refusal = [&](const TrainModel& model, const ModelFactory& factory) {
    const optim::Mask matrices = model.muon_matrices();
    const NamedArrays parameters = model.parameters();
    for (size_t i = 0; i < parameters.names.size(); ++i)
      EXPECT_FALSE(matrices({parameters.names[i], parameters.arrays[i]})) << parameters.names[i];
    EXPECT_THAT(
        message_of([&] { Job(c, 1, factory); }),
        HasSubstr("optimizer.name = muon has nothing to take: the model has no matrices for "
                  "it; set another optimizer"));
  };
  expect_refusal(Vectors(c), vectors);
  expect_refusal(StacksOfVectors(c), [](const TrainConfig& config) {
    return std::make_shared<const StacksOfVectors>(config);
  });
  c.optimizer.freeze = "shift";
  expect_refusal(Vectors(c), vectors);
}

TEST_F(VectorModel, AStepByItselfTakesTheModelsRandomBatch) {
  const TrainConfig c = config("step", 1);
  const Outcome trained = train(c);
  ASSERT_EQ(trained.losses.size(), 1u);
  StepRunOptions options;
  options.config = c;
  options.budget_bytes = Device::unlimited_bytes();
  options.factory = vectors_without_data;
  Result<StepRun> run = StepRun::make(options);
  ASSERT_TRUE(run.ok()) << run.error();
  EXPECT_EQ(hex_float(run->step()), trained.losses[0]);
  EXPECT_THAT(Job(c, 1, vectors).describe(),
              HasSubstr("128 parameters, two vectors; 256 rows a step"));
  EXPECT_THAT(Job(c, 1, vectors_without_data).describe(),
              HasSubstr("two vectors; 256 points a step"));
}

}  // namespace
}  // namespace stow
