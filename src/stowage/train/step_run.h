// StepRun: compiles and runs the training step of a configuration by itself, for measurements.
// Not a training run: one batch, no evaluation, no checkpoints.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/session/compile.h"
#include "stowage/train/config.h"
#include "stowage/train/job.h"

namespace stow {

struct StepRunOptions {
  TrainConfig config;
  /// Safetensors with the model's leaves by path, f32. Empty: weights of the model's files, or
  /// random.
  std::string weights_path;
  /// Safetensors with "tokens" i32 [batch, seq + 1], for a model whose batch is "tokens" alone.
  /// Empty: TrainModel::random_batch(), or the first batch of the data that has shape 0.
  std::string tokens_path;
  int64_t budget_bytes = 0;  ///< Device memory.
  int threads = 1;
  ModelFactory factory;  ///< Must be set.
};

/// The step of one configuration, with its state. One thread uses it.
class StepRun {
 public:
  /// Traces and compiles the step under the configured policy, or under the first that fits, then
  /// reads or makes weights and a batch.
  /// Errors: a configuration with memory other than the device's, which StepRun does not use; a
  ///         file that is missing, malformed or has other tensors or types than the model, with its
  ///         path and the tensor's name; a weight that is not finite, with its place in the tensor;
  ///         a token outside of the vocabulary; tokens for a model with another batch; those of
  ///         TrainModel::open_data(); CapacityError if no policy fits the budget.
  static Result<StepRun> make(const StepRunOptions& options);

  /// Runs one step and returns its loss. `observer`: null, or told of every kernel.
  float step(RunObserver* observer = nullptr);

  const Executable& program() const { return *program_; }
  const Placement& placement() const { return placement_; }  ///< The placement of the plan.
  double compile_s() const { return compile_s_; }  ///< Seconds from the first trace to the program.
  int64_t measured_peak_bytes() const;             ///< Peak since the state was made.

 private:
  StepRun() = default;
  void compile_step(const StepRunOptions& options);
  Result<void> make_state(const StepRunOptions& options);
  Result<void> make_frozen(const TrainModel& model);
  Result<void> make_batch(const StepRunOptions& options);
  Result<void> read_tokens(const StepRunOptions& options);
  void upload(const HostBatch& batch);

  ExecutablePtr program_;
  Placement placement_;
  double compile_s_ = 0;
  DevicePtr device_;
  TrainModelPtr model_;
  std::unique_ptr<ModelWeights> weights_;  // the model's files, while they are read
  std::vector<DeviceBufferPtr> state_;
  std::vector<DeviceBufferPtr> rest_;  // all other arguments: frozen weights and the batch
};

}  // namespace stow
