// RunState: the arrays of a training run on its devices, and their way from and to checkpoints.
// Not when they are saved, nor the steps; trainer.cpp has both.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "stowage/base/inside.h"
#include "stowage/io/checkpoint_file.h"
#include "stowage/train/job.h"
#include "stowage/train/positions.h"

namespace stow {

/// Parameters, optimizer state and average ("the state"), and the frozen weights, in the order of
/// JobPrograms, by position of this process. Processes of one run call each function at the same place.
/// The job, the plan and the positions outlive it.
class RunState {
 public:
  /// `data_digest`: of the data that the run reads.
  RunState(const Job& job, const JobPlan& plan, Positions& positions, std::string data_digest);

  /// Makes the state that a run begins with, from the seed or the model's files.
  /// Errors: the model's files; CapacityError, DiskError.
  Result<void> make();
  /// Reads the frozen weights; the last that is read of the model's files. Errors: as make().
  Result<void> load_frozen();
  /// Opens a checkpoint of this job. Errors: as open_checkpoint().
  Result<Checkpoint> open(const std::string& path) const;
  /// Takes the state of a checkpoint that open() gave. Errors: as read_state().
  Result<void> read(const Checkpoint& checkpoint);
  /// Saves the state in the folder `train.out`; `meta` without its configuration, which is the job's.
  /// Returns the path. Errors: as save_state().
  Result<std::string> save(CheckpointMeta meta, const Retention& keep);

  /// Frees the arrays of the state.
  void clear() { state_.clear(); }
  /// The arguments of a step before its batch. The state is empty until the step's results are set.
  PositionBuffers take_step_arguments();
  void set(PositionBuffers state) { state_ = std::move(state); }
  /// The arguments of evaluation and of samples before their inputs.
  PositionBuffers model_arguments() const;
  /// Appends each position's part of these arrays to its arguments. `shardings`: by array.
  void upload(const HostBatch& batch, const NamedArrays& types, std::span<const AxisSharding> shardings,
              PositionBuffers& arguments);
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
