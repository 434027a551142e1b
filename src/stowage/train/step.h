// The training step as a function to trace: loss, gradients, update.
// Not compiled programs; those are of job.h.
#pragma once

#include <string>

#include "stowage/api/checkpoint.h"
#include "stowage/base/inside.h"
#include "stowage/optim/transformation.h"
#include "stowage/train/config.h"
#include "stowage/train/model.h"

namespace stow {

struct TrainState {
  NamedArrays model;
  optim::OptState optimizer;
};
STOW_TREE(TrainState, model, optimizer);

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
/// The types of the state that training begins with, on the device.
TrainState abstract_state(const TrainConfig& config, const TrainModel& model);
/// One step on a batch. The new state lies where the old one does.
StepResult train_step(const TrainConfig& config, const TrainModel& model, const TrainState& state,
                      const NamedArrays& batch, const StepForm& form = {});
/// That step traced for a state of such types and places.
Graph trace_step(const TrainConfig& config, const TrainModel& model, const TrainState& state,
                 const StepForm& form);
/// The arrays of `state` in the memories of those of `like`.
TrainState put_like(const TrainState& state, const TrainState& like);
/// The checkpoint policy behind a word of `memory.policy` other than "auto"; `elsewhere` is where the
/// offloading ones move values.
PolicyPtr named_policy(const std::string& name, MemoryKind elsewhere = MemoryKind::kPinnedHost);
/// The same by the name that the policy bears, "offload_named(disk)"; null for any other.
PolicyPtr step_policy_by_name(std::string_view name);

}  // namespace stow
