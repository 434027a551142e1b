// The training step as a function to trace: loss, gradients, update.
// Not compiled programs; those are of job.h.
#pragma once

#include <string>

#include "stowage/api/checkpoint.h"
#include "stowage/base/inside.h"
#include "stowage/nn/decoder.h"
#include "stowage/optim/transformation.h"
#include "stowage/train/config.h"

namespace stow {

struct TrainState {
  nn::Decoder model;
  optim::OptState optimizer;
};
STOW_TREE(TrainState, model, optimizer);

struct StepResult {
  TrainState state;
  Array loss, grad_norm, lr;  // f32 scalars
};
STOW_TREE(StepResult, state, loss, grad_norm, lr);

/// The model of a configuration.
nn::DecoderConfig decoder_config(const TrainConfig& config);
/// One step on tokens i32 [B, T + 1]. The new state lies where the old one does, the gradients wait
/// for the update in `gradients`.
StepResult train_step(const TrainConfig& config, const nn::DecoderConfig& model_config,
                      const TrainState& state, const Array& tokens,
                      MemoryKind gradients = MemoryKind::kDevice);
/// Forms of one step that have the same bits: the layers in nested blocks, the feed-forward blocks
/// or the loss chunk by chunk, where the gradients wait.
struct StepForm {
  bool nested = false, chunked = false, chunked_loss = false;
  MemoryKind gradients = MemoryKind::kDevice;
  friend auto operator<=>(const StepForm&, const StepForm&) = default;
};
/// That step traced for a state of such types and places.
Graph trace_step(const TrainConfig& config, const TrainState& state, StepForm form);
/// The arrays of `state` in the memories of those of `like`.
TrainState put_like(const TrainState& state, const TrainState& like);
/// The checkpoint policy behind a word of `memory.policy` other than "auto"; `elsewhere` is where the
/// offloading ones move values.
PolicyPtr named_policy(const std::string& name, MemoryKind elsewhere = MemoryKind::kPinnedHost);
/// The same by the name that the policy bears, "offload_named(disk)"; null for any other.
PolicyPtr step_policy_by_name(std::string_view name);

}  // namespace stow
