// StepRun: the training step of a configuration, compiled and run by itself, for measurements.
// Not a training run: no data, no evaluation, no checkpoints.
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
  /// Safetensors with the model's leaves by path, f32; empty: those of the model's own files, or seeded.
  std::string weights_path;
  /// Safetensors with "tokens" i32 [batch, seq + 1]; empty: seeded, or for a model from files the first
  /// batch of its data.
  std::string tokens_path;
  int64_t budget_bytes = 0;
  int threads = 1;
  ModelFactory factory = decoder_model;
};

/// The step of one configuration, with its state. Used by one thread.
class StepRun {
 public:
  /// Traces and compiles the step under the first policy that fits, or the one asked for, then
  /// reads or makes weights and tokens.
  /// Errors: a configuration with memories beside the device's, which it does not use; a file that is
  ///         missing, malformed or has other tensors or types than the model, with its path and the
  ///         tensor's name; a weight that is not finite, with its place in the tensor; a token outside
  ///         the vocabulary; CapacityError where no policy fits the budget.
  static Result<StepRun> make(const StepRunOptions& options);

  /// Runs one step; returns its loss. The observer, where there is one, hears of every kernel.
  float step(RunObserver* observer = nullptr);

  const Executable& program() const { return *program_; }
  const Placement& placement() const { return placement_; }  ///< The placement of its plan.
  double compile_s() const { return compile_s_; }  ///< From the first trace to the chosen program.
  int64_t measured_peak_bytes() const;             ///< Since the state was made.

 private:
  StepRun() = default;
  void compile_step(const StepRunOptions& options);
  Result<void> make_state(const StepRunOptions& options);
  Result<void> make_frozen(const TrainModel& model);
  Result<void> make_batch(const StepRunOptions& options);
  Result<void> make_tokens(const StepRunOptions& options);

  ExecutablePtr program_;
  Placement placement_;
  double compile_s_ = 0;
  DevicePtr device_;
  TrainModelPtr model_;
  std::unique_ptr<ModelWeights> weights_;  // Weights of the model's files, while they are read.
  std::vector<DeviceBufferPtr> state_;
  std::vector<DeviceBufferPtr> rest_;  // The rest of the arguments: frozen weights and the batch.
};

}  // namespace stow
