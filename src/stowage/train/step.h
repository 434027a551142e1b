// The training step as a function to trace: loss, gradients, update.
// Not compiled programs; those are of job.h.
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
  NamedArrays ema;  ///< The average of the model's parameters over steps (train.ema); empty for none.
};
STOW_TREE(TrainState, model, optimizer, ema);

/// Arrays in a dtype; those that have it, and those that are no floats, as they are. Abstract ones stay so.
NamedArrays in_dtype(const NamedArrays& arrays, DType dtype);
/// Arrays of bf16 as f32, all others as they are: what updates are computed in.
NamedArrays widened(const NamedArrays& arrays);
/// Arrays in the dtypes of those of `like`.
NamedArrays in_dtypes_of(const NamedArrays& arrays, const NamedArrays& like);
/// The state that training begins with, of its parameters. Moments and the average are f32 whatever
/// the parameters' dtype.
TrainState first_state(const TrainConfig& config, const NamedArrays& parameters);
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

/// Forms of one step that have the same bits: those of its loss, and where the gradients wait for the
/// update.
struct StepForm {
  LossForm loss = {};
  MemoryKind gradients = MemoryKind::kDevice;
  friend auto operator<=>(const StepForm&, const StepForm&) = default;
};
/// The types of first_state(), on the device.
TrainState abstract_state(const TrainConfig& config, const TrainModel& model);
/// The batch of a step of the configuration: a microbatch of that shape, or data.accumulate of them
/// stacked along a first axis.
NamedArrays step_batch(const TrainConfig& config, const TrainModel& model, size_t shape = 0);
/// One step on a batch of step_batch(). The new state lies where the old one does. The gradients of
/// several microbatches are added up one after another, in one set of buffers.
StepResult train_step(const TrainConfig& config, const TrainModel& model, const TrainState& state,
                      const NamedArrays& frozen, const NamedArrays& batch,
                      const StepForm& form = {});
/// That step traced for a state and frozen weights of such types and places, in that order before the
/// batch.
Graph trace_step(const TrainConfig& config, const TrainModel& model, const TrainState& state,
                 const NamedArrays& frozen, const StepForm& form, size_t shape = 0);
/// The arrays of `state` in the memories of those of `like`.
TrainState put_like(const TrainState& state, const TrainState& like);
/// The decisions of a policy, value by value; `elsewhere` is where the offloading ones move values.
PolicyPtr named_policy(StepPolicy policy, MemoryKind elsewhere = MemoryKind::kPinnedHost);
/// The same by the name that the policy bears, "offload_named(disk)"; null for any other.
PolicyPtr step_policy_by_name(std::string_view name);

}  // namespace stow
