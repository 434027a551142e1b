// A model that is not the decoder, through the same trainer: an MLP whose layers a scan repeats. It
// plans, trains, is refused, and resumes to the bit. The tests of OtherModelOnEachTarget run on the
// host's target and on OtherTarget, the others on the host's alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "stowage/stowage.h"
#include "stowage/train/data.h"
#include "stowage/train/step_run.h"
#include "stowage/train/trainer.h"
#include "tests/support/message_of.h"
#include "tests/support/training_fixture.h"

namespace stow {
namespace {

using testing::joined_losses;
using testing::Outcome;

constexpr int64_t kWidth = 48, kLayers = 6;

// Points x and the sums of their squares.
class Points : public TrainData {
 public:
  explicit Points(int64_t rows) : rows_(rows) {}
  HostBatch train_batch(uint64_t seed, int64_t step) const override {
    std::vector<float> x, y;
    for (int64_t i = 0; i < rows_; ++i) {
      float sum = 0;
      for (int64_t j = 0; j < kWidth; ++j) {
        const uint64_t bits =
            mix_bits(seed, static_cast<uint64_t>(step), static_cast<uint64_t>(i * kWidth + j));
        x.push_back(static_cast<float>(bits >> 40) * 0x1p-23f - 1);
        sum += x.back() * x.back();
      }
      y.push_back(sum / kWidth);
    }
    return {{bytes_of(x), bytes_of(y)}};
  }
  int64_t n_validation_batches() const override { return 2; }
  HostBatch validation_batch(int64_t i) const override { return train_batch(1u << 20, i); }
  std::string digest() const override { return "points"; }

 private:
  int64_t rows_;
};

class Mlp : public TrainModel {
 public:
  explicit Mlp(const TrainConfig& config) : rows_(config.data.batch) {}

  NamedArrays parameters() const override {
    NamedArrays p;
    p.add("blocks/w", Array::abstract(Shape{kLayers, kWidth, kWidth}));
    p.add("blocks/b", Array::abstract(Shape{kLayers, kWidth}));
    p.add("out", Array::abstract(Shape{kWidth}));
    return p;
  }
  std::vector<WeightAxis> axes_of(std::string_view path) const override {
    if (!path.starts_with("blocks/")) return {};
    std::vector<WeightAxis> axes(path == "blocks/w" ? 3 : 2);
    axes[0] = {"layers", kLayers};
    return axes;
  }
  NamedArrays init(const Array& key) const override {
    NamedArrays p;
    p.add("blocks/w", random::normal(random::fold_in(key, 0), {kLayers, kWidth, kWidth}) * 0.2);
    p.add("blocks/b", zeros({kLayers, kWidth}));
    p.add("out", random::normal(random::fold_in(key, 1), {kWidth}) * 0.2);
    return p;
  }
  NamedArrays batch(size_t) const override {
    NamedArrays b;
    b.add("x", Array::abstract(Shape{rows_, kWidth}));
    b.add("y", Array::abstract(Shape{rows_}));
    return b;
  }
  Array loss(const ModelArrays& model, const NamedArrays& b, const LossForm& form) const override {
    const NamedArrays& p = model.parameters;
    const auto layer = [](const Array& h, const std::vector<Array>& w) {
      const Array x = checkpoint_name(h, "layer_in");
      const Array weight = device_put(w[0], MemoryKind::kDevice);
      const Array bias = device_put(w[1], MemoryKind::kDevice);
      return x + tanh(matmul(x, weight) + bias);
    };
    const std::vector<Array> layers = {p.arrays[0], p.arrays[1]};
    const Array h = form.nested ? nested_scan(layer, b.arrays[0], layers, {.blocks = {0}})
                                : scan(checkpoint(layer, nullptr, {.prevent_cse = false}),
                                       b.arrays[0], layers);
    return mean(square(matmul(h, device_put(p.arrays[2], MemoryKind::kDevice)) - b.arrays[1]));
  }
  std::string describe() const override { return "an MLP"; }
  ModelSizes sizes() const override { return {kLayers, kWidth, 0, 0}; }
  std::string loss_unit() const override { return "mean squared error"; }
  Result<std::unique_ptr<TrainData>> open_data() const override {
    return std::unique_ptr<TrainData>(std::make_unique<Points>(rows_));
  }

 private:
  int64_t rows_;
};

TrainModelPtr mlp(const TrainConfig& config) { return std::make_shared<const Mlp>(config); }

// The same without names of axes.
class MlpWithoutAxes : public Mlp {
 public:
  using Mlp::Mlp;
  std::vector<WeightAxis> axes_of(std::string_view) const override { return {}; }
};

// The same, and it says which gradients need the backward pass of its layers.
class MlpThatNamesItsStack : public Mlp {
 public:
  using Mlp::Mlp;
  bool reaches_layers(std::string_view path) const override { return path.starts_with("blocks/"); }
};
TrainModelPtr mlp_that_names_its_stack(const TrainConfig& config) {
  return std::make_shared<const MlpThatNamesItsStack>(config);
}

class OtherModel : public testing::TrainingFixture {
 protected:
  OtherModel() : TrainingFixture(1) {}

  TrainConfig config(const std::string& name, int64_t steps) const {
    return config_without_data(name, steps, 256);
  }

  Outcome train(const TrainConfig& c, std::optional<int64_t> budget = {}, bool resume = false) {
    return train_to_its_end(Job(c, target(), mlp), budget, resume);
  }
};

using OtherModelOnEachTarget = testing::OnEachTarget<OtherModel>;
INSTANTIATE_TEST_SUITE_P(, OtherModelOnEachTarget, testing::each_target(), testing::target_name);

TEST_P(OtherModelOnEachTarget, LearnsWithTheSameBitsUnderEveryPolicy) {
  std::vector<std::string> losses;
  std::vector<int64_t> peaks;
  for (const std::string policy : {"save_all", "recompute", "nested", "offload_carries"}) {
    TrainConfig c = config(policy, 8);
    c.memory.policy = policy;
    if (policy == "offload_carries") c.runtime.platform = "virtual";
    const Outcome o = train(c);
    if (losses.empty()) losses = o.losses;
    EXPECT_EQ(o.losses, losses) << policy;
    EXPECT_LT(*o.summary.find("last_loss")->as_double(),
              *o.summary.find("first_loss")->as_double());
    EXPECT_TRUE(std::isfinite(*o.summary.find("validation_loss")->as_double()));
    peaks.push_back(o.device_peak());
    const Json& measured = *o.summary.find("measured_peak_bytes");
    EXPECT_EQ(*measured.find("pinned_host")->as_int() > 0, policy == "offload_carries") << policy;
  }
  EXPECT_GT(peaks[0], peaks[1]);
}

TEST_P(OtherModelOnEachTarget, IsRefusedAByteBelowItsLeastPlanWithRemediesThatHold) {
  const TrainConfig c = config("refused", 2);
  const Job job(c, target(), mlp);
  const Choice tight = choose_plan(job, budgets_of(c, 1));
  ASSERT_FALSE(tight.plan);
  int64_t least = INT64_MAX;
  for (const Candidate& candidate : tight.candidates)
    least = std::min(least, candidate.peak_bytes[0]);
  const Budgets budgets = budgets_of(c, least - 1);
  const Choice refused = choose_plan(job, budgets);
  ASSERT_FALSE(refused.plan);
  const std::vector<Shortfall> near = shortfalls(job, refused, budgets);
  const std::string text =
      describe_refusal(job, refused, near, refusal_remedies(job, refused, near, budgets), budgets);
  EXPECT_THAT(text, ::testing::HasSubstr("--set data.batch=128"));
  EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr("model.tied"))) << "of the decoder alone";
  EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr("loss_chunk"))) << "it has no logits";
  // A program may print and run a choice without looking whether it has a plan.
  EXPECT_EQ(describe_choice(job, refused, budgets),
            describe_refusal(job, refused, near, {}, budgets));
  const Result<int> not_run = run_training(job, refused, budgets, {});
  ASSERT_FALSE(not_run);
  EXPECT_THAT(not_run.error(), ::testing::HasSubstr("expected a choice with a plan, got none"));
  ASSERT_TRUE(choose_plan(job, budgets_of(c, least)).plan);
  train(c, least);
}

TEST_P(OtherModelOnEachTarget, ResumesToTheBit) {
  const Outcome whole = train(config("whole", 8));
  const Outcome first = train(config("parts", 4));
  const Outcome second = train(config("parts", 8), {}, true);
  EXPECT_EQ(joined_losses(first, second), whole.losses);
}

TEST_F(OtherModel, AStepByItselfTakesABatchOfTheModelsData) {
  const TrainConfig c = config("step", 1);
  const Outcome trained = train(c);
  ASSERT_EQ(trained.losses.size(), 1u);
  StepRunOptions options;
  options.config = c;
  options.budget_bytes = Device::unlimited_bytes();
  options.factory = mlp;
  Result<StepRun> run = StepRun::make(options);
  ASSERT_TRUE(run.ok()) << run.error();
  EXPECT_EQ(hex_float(run->step()), trained.losses[0]);
  EXPECT_EQ(run->measured_peak_bytes(), run->program().memory_analysis().device().total_bytes);
  options.tokens_path = "tokens.safetensors";
  EXPECT_THAT(StepRun::make(options).error(),
              ::testing::HasSubstr("tokens.safetensors: expected a model whose batch is 'tokens' "
                                   "i32 alone, got 'x' f32[256,48], 'y' f32[256]"));
}

TEST_F(OtherModel, AnOffloadIsRefusedIfTheModelSaysThatNothingTrainedReachesTheLayers) {
  TrainConfig c = config("frozen", 1);
  c.runtime.platform = "virtual";
  c.memory.policy = "offload_carries";
  const std::string kNone = "nothing was thrown";
  const auto refusal = [&](const ModelFactory& factory) {
    return message_of([&] { Job(c, 1, factory); });
  };
  EXPECT_EQ(refusal(mlp_that_names_its_stack), kNone);
  c.optimizer.freeze = "out";
  EXPECT_EQ(refusal(mlp_that_names_its_stack), kNone);
  c.optimizer.freeze = "blocks";
  EXPECT_THAT(refusal(mlp_that_names_its_stack),
              ::testing::HasSubstr("memory.policy = offload_carries has no effect with "
                                   "optimizer.freeze = blocks"));
  EXPECT_EQ(refusal(mlp), kNone) << "it does not say";
}

TEST_F(OtherModel, MuonTakesItsMatrices) {
  TrainConfig c = config("muon", 2);
  c.optimizer.name = "muon";
  const optim::Mask matrices = Mlp(c).muon_matrices();
  const NamedArrays parameters = Mlp(c).parameters();
  for (size_t i = 0; i < parameters.names.size(); ++i)
    EXPECT_EQ(matrices({parameters.names[i], parameters.arrays[i]}),
              parameters.names[i] == "blocks/w")
        << parameters.names[i];
  EXPECT_TRUE(std::isfinite(*train(c).summary.find("last_loss")->as_double()));
  c.optimizer.freeze = "blocks/w";
  EXPECT_THAT(
      message_of([&] { Job(c, 1, mlp); }),
      ::testing::HasSubstr("muon has nothing to take with optimizer.freeze = blocks/w: all of "
                           "the model's matrices are frozen"));
  c.optimizer.freeze = "";
  const ModelFactory unnamed = [](const TrainConfig& config) {
    return std::make_shared<const MlpWithoutAxes>(config);
  };
  EXPECT_THAT(
      message_of([&] { Job(c, 1, unnamed); }),
      ::testing::HasSubstr("muon cannot tell which axes of blocks/w f32[6,48,48] are a matrix"));
}

TEST_F(OtherModel, IsDescribedByItsRows) {
  TrainConfig c = config("described", 1);
  EXPECT_THAT(Job(c, 1, mlp).describe(), ::testing::HasSubstr("an MLP; 256 rows a step"));
  c.data.accumulate = 2;
  EXPECT_THAT(Job(c, 1, mlp).describe(),
              ::testing::HasSubstr("an MLP; 2 microbatches of 256 rows a step"));
}

}  // namespace
}  // namespace stow
