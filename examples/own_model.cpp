// A model of one's own in the trainer: a network of residual layers that learns the mean square of
// its inputs, planned for a budget, trained, evaluated and saved.
//
//   build/release/examples/own_model [FOLDER [BUDGET]]      the folder of checkpoints; such as 8MiB
#include <stowage/stowage.h>
#include <stowage/train/trainer.h>

#include <fmt/core.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

using namespace stow;

constexpr int64_t kWidth = 48, kLayers = 6;

// A batch depends on the seed and the step alone, so that a resumed run goes on with its data.
class Points : public TrainData {
 public:
  explicit Points(int64_t rows) : rows_(rows) {}
  HostBatch train_batch(uint64_t seed, int64_t step) const override {
    std::vector<float> x, y;
    uint64_t state = seed * 1'000'003 + static_cast<uint64_t>(step) + 1;
    for (int64_t i = 0; i < rows_; ++i) {
      float sum = 0;
      for (int64_t j = 0; j < kWidth; ++j) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        x.push_back(static_cast<float>(state >> 40) * 0x1p-23f - 1);
        sum += x.back() * x.back();
      }
      y.push_back(sum / kWidth);
    }
    return {.arrays = {bytes_of(x), bytes_of(y)}};  // the arrays of batch(), in its order
  }
  int64_t n_validation_batches() const override { return 2; }
  HostBatch validation_batch(int64_t i) const override { return train_batch(1u << 20, i); }
  std::string digest() const override { return "points"; }

 private:
  int64_t rows_;
};

class Network : public TrainModel {
 public:
  explicit Network(const TrainConfig& config) : rows_(config.data.batch) {}

  NamedArrays parameters() const override {
    NamedArrays p;
    p.add("layers/w", Array::abstract(Shape{kLayers, kWidth, kWidth}));
    p.add("layers/b", Array::abstract(Shape{kLayers, kWidth}));
    p.add("out", Array::abstract(Shape{kWidth}));
    return p;
  }
  // A mesh does not cut the axis of the layers, and Muon takes the matrices beside it.
  std::vector<WeightAxis> axes_of(std::string_view path) const override {
    if (!path.starts_with("layers/")) return {};
    std::vector<WeightAxis> axes(path == "layers/w" ? 3 : 2);
    axes[0].name = "layers";
    return axes;
  }
  NamedArrays init(const Array& key) const override {
    NamedArrays p;
    p.add("layers/w", random::normal(random::fold_in(key, 0), {kLayers, kWidth, kWidth}) * 0.2);
    p.add("layers/b", zeros({kLayers, kWidth}));
    p.add("out", random::normal(random::fold_in(key, 1), {kWidth}) * 0.2);
    return p;
  }
  NamedArrays batch(size_t /*shape*/) const override {
    NamedArrays b;
    b.add("x", Array::abstract(Shape{rows_, kWidth}));
    b.add("y", Array::abstract(Shape{rows_}));
    return b;
  }
  Array loss(const ModelArrays& weights, const NamedArrays& b,
             const LossForm& /*form*/) const override {
    const std::vector<Array>& p = weights.parameters.arrays;  // in the order of parameters()
    const auto layer = [](const Array& entering, const std::vector<Array>& w) {
      const Array x = checkpoint_name(entering, "layer_in");
      const Array weight = device_put(w[0], MemoryKind::kDevice);
      return x + tanh(matmul(x, weight) + device_put(w[1], MemoryKind::kDevice));
    };
    const auto body = checkpoint(layer, nullptr, {.prevent_cse = false});
    const Array h = scan(body, b.arrays[0], std::vector<Array>{p[0], p[1]});
    return mean(square(matmul(h, device_put(p[2], MemoryKind::kDevice)) - b.arrays[1]));
  }
  std::string describe() const override { return fmt::format("{} layers of {}", kLayers, kWidth); }
  ModelSizes sizes() const override { return {.layers = kLayers, .width = kWidth}; }
  std::string loss_unit() const override { return "mean squared error"; }
  Result<std::unique_ptr<TrainData>> open_data() const override {
    return std::unique_ptr<TrainData>(std::make_unique<Points>(rows_));
  }

 private:
  int64_t rows_;
};

int main(int argc, char** argv) {
  TrainConfig config;
  config.data.path = "";    // open_data() reads none
  config.data.batch = 256;  // rows of a batch
  config.data.seq = 1;      // tokens of a row
  config.train.steps = config.optimizer.total_steps = 60;
  config.train.sample = 0;  // there is no sample()
  config.train.out = argc > 1 ? argv[1] : "own_model";
  config.optimizer.warmup = 5;

  std::optional<int64_t> budget;
  if (argc > 2) {
    const Result<int64_t> bytes = parse_bytes(argv[2]);
    if (!bytes) return fmt::print("{}\n", bytes.error()), 2;
    budget = *bytes;
  }
  const Job job(config, 1, [](const TrainConfig& c) { return std::make_shared<const Network>(c); });
  const Budgets budgets = budgets_of(config, budget);
  const Choice choice = choose_plan(job, budgets);
  if (!choice.plan) {
    const std::vector<Shortfall> near = shortfalls(job, choice, budgets);
    const std::vector<Remedy> remedies = refusal_remedies(job, choice, near, budgets);
    fmt::print("over budget: {}", describe_refusal(job, choice, near, remedies, budgets));
    return 4;
  }
  fmt::print("{}", describe_choice(job, choice, budgets));
  const BytesByKind& peak = choice.plan->peak_bytes;  // all the memory that the run gets
  RunOptions options;
  options.text = stdout;
  const Result<int> status = run_training(job, choice, {peak[0], peak[1], peak[2]}, options);
  if (!status) fmt::print("{}\n", status.error());
  return status ? *status : 1;
}
