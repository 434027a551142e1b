// RunState: the arrays of a training run on its devices, loaded from and saved to checkpoints.
// Not the schedule of saves, nor the steps; trainer.cpp has both.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "stowage/base/inside.h"
#include "stowage/io/checkpoint_file.h"
#include "stowage/train/job.h"
#include "stowage/train/positions.h"

namespace stow {

/// The state (parameters, optimizer state, average) and the frozen weights, in the order of
/// JobPrograms, by position of this process. All processes of a run must call each function at the
/// same point. The job, the plan and the positions must outlive it.
class RunState {
 public:
  /// `data_digest`: the digest of the run's data, TrainData::digest().
  RunState(const Job& job, const JobPlan& plan, Positions& positions, std::string data_digest);

  /// Makes the initial state, from the seed or the model's files.
  /// Errors: errors of the model's files; CapacityError, DiskError.
  Result<void> make();
  /// Reads the frozen weights, and closes the model's files. Errors: as make().
  Result<void> load_frozen();
  /// Opens a checkpoint of this job. Errors: as open_checkpoint().
  Result<Checkpoint> open(const std::string& path) const;
  /// Reads the state from a checkpoint that open() returned. Errors: as read_state().
  Result<void> read(const Checkpoint& checkpoint);
  /// Saves the state in the folder `train.out` and returns the path of the checkpoint. Fills in the
  /// configuration of `meta`. Errors: as save_state().
  Result<std::string> save(CheckpointMeta meta, const Retention& keep);

  /// Frees the arrays of the state.
  void clear() { state_.clear(); }
  /// Returns the first arguments of a step, up to its batch, and gives up the state: set() must
  /// follow with the step's results.
  PositionBuffers take_step_arguments();
  void set(PositionBuffers state) { state_ = std::move(state); }
  /// Returns the first arguments of evaluation and sampling, up to their inputs.
  PositionBuffers model_arguments() const;
  /// Uploads each position's part of a batch and appends it to the position's arguments.
  /// `shardings`: by array.
  void upload(const HostBatch& batch, const NamedArrays& types,
              std::span<const AxisSharding> shardings, PositionBuffers& arguments);
  /// The types of a step's arguments: the state, the frozen weights, the batch.
  std::span<const ArrayType> step_inputs() const { return plan_.programs.step->input_types(); }

 private:
  Result<void> open_weights();
  DeviceBufferPtr upload_part(std::span<const std::byte> whole, const ArrayType& type,
                              const AxisSharding& sharding, size_t p);
  void append_frozen(PositionBuffers& arguments) const;
  ConfigText text_to_agree() const;
  CheckpointRequirements needs() const;

  const Job& job_;
  const JobPlan& plan_;
  Positions& positions_;
  std::string data_digest_, frozen_digest_;
  PositionBuffers state_, frozen_;
  std::unique_ptr<ModelWeights> weights_;  // while they are read
};

}  // namespace stow
