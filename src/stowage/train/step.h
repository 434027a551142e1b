// The training step as a function to trace: loss, gradients, update.
// Not compiled programs; job.h has those.
#pragma once

#include <string>

#include "stowage/api/checkpoint.h"
#include "stowage/base/inside.h"
#include "stowage/optim/transformation.h"
#include "stowage/train/config.h"
#include "stowage/train/model.h"
#include "stowage/train/policies.h"

namespace stow {

struct TrainState {
  NamedArrays model;
  optim::OptState optimizer;
  NamedArrays ema;  ///< The average of the parameters over steps (train.ema); empty: none.
};
STOW_TREE(TrainState, model, optimizer, ema);

/// Converts all float arrays to `dtype`. Abstract arrays stay abstract.
NamedArrays in_dtype(const NamedArrays& arrays, DType dtype);
/// Converts bf16 arrays to f32, the dtype in which updates are computed.
NamedArrays widened(const NamedArrays& arrays);
/// Converts each array to the dtype of the array of `like` at the same index.
NamedArrays in_dtypes_of(const NamedArrays& arrays, const NamedArrays& like);
/// Returns the initial state for these parameters. Moments and the average are f32 for parameters
/// of any dtype.
TrainState first_state(const TrainConfig& config, const TrainModel& model,
                       const NamedArrays& parameters);
/// The state without the parameters.
struct RestOfState {
  optim::OptState optimizer;
  NamedArrays ema;
};
STOW_TREE(RestOfState, optimizer, ema);

struct StepResult {
  TrainState state;
  Array loss, grad_norm, lr;  // f32 scalars
};
STOW_TREE(StepResult, state, loss, grad_norm, lr);

/// The form of a step. All forms have the same bits.
struct StepForm {
  LossForm loss = {};
  MemoryKind gradients = MemoryKind::kDevice;  ///< Memory of gradients until the update.
  friend auto operator<=>(const StepForm&, const StepForm&) = default;
};
/// Returns abstract arrays with the types of first_state(), on the device.
TrainState abstract_state(const TrainConfig& config, const TrainModel& model);
/// Returns the abstract batch of a step: a microbatch of this shape, or data.accumulate of them
/// stacked along a first axis.
NamedArrays step_batch(const TrainConfig& config, const TrainModel& model, size_t shape = 0);
/// Computes one step on a batch of step_batch(). The new state has the memory kinds of the old one.
/// Gradients of several microbatches are summed one after another in one set of buffers.
StepResult train_step(const TrainConfig& config, const TrainModel& model, const TrainState& state,
                      const NamedArrays& frozen, const NamedArrays& batch,
                      const StepForm& form = {});
/// Traces train_step() for abstract `state` and `frozen`. The graph's inputs: state, frozen, batch.
Graph trace_step(const TrainConfig& config, const TrainModel& model, const TrainState& state,
                 const NamedArrays& frozen, const StepForm& form, size_t shape = 0);
/// Moves each array of `state` to the memory kind of the array of `like` at the same place.
TrainState put_like(const TrainState& state, const TrainState& like);
/// Returns the checkpoint policy that decides for each value. `elsewhere`: the memory kind to which
/// an offloading policy moves values.
PolicyPtr named_policy(StepPolicy policy, MemoryKind elsewhere = MemoryKind::kPinnedHost);
/// Returns the checkpoint policy with this name, "offload_named(disk)"; null if there is none.
PolicyPtr step_policy_by_name(std::string_view name);

}  // namespace stow
