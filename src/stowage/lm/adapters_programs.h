// The compiled programs of lm::Adapters: a pass over a batch with its gradients, and a step of one slot.
// Not the slots themselves; adapters.h has those.
#pragma once

#include <optional>

#include "stowage/api/checkpoint.h"
#include "stowage/base/inside.h"
#include "stowage/lm/model.h"
#include "stowage/nn/rl_losses.h"
#include "stowage/session/compile.h"

namespace stow::lm {

/// The shapes that a program of a pass is compiled for.
struct PassShape {
  int64_t rows = 1, length = 1;  ///< B and T.
  bool has_intervals = false;    ///< Positions and visible keys are given.
  bool has_pairs = false;        ///< Rows of DPO: the base's log-probabilities are computed first.
  bool gradients = true;         ///< Else log-probabilities and losses alone.
  friend auto operator<=>(const PassShape&, const PassShape&) = default;
};

/// A batch on the device.
struct PassBatch {
  Array tokens, targets;                   // i32 [B, T]
  std::optional<Array> positions, lo, hi;  // i32 [B, T]
  Array slot_of_row;                       // i32 [B]
  nn::LossBatch loss;
};
STOW_TREE(PassBatch, tokens, targets, positions, lo, hi, slot_of_row, loss);
PassBatch abstract_pass_batch(const PassShape& shape);

/// The results of a pass. `sums` are the gradients' sums with this batch's added.
struct PassResult {
  std::optional<nn::LoraSlots> sums;
  Array logprobs;  // f32 [B, T]
  nn::RowLosses losses;
};
STOW_TREE(PassResult, sums, logprobs, losses);

/// The pass compiled. Arguments: the model's, slots, scales, where there are gradients their sums, which
/// are donated, and a PassBatch.
ExecutablePtr compile_pass(const Model& model, const nn::LoraSlotsConfig& slots,
                           const PassShape& shape, int64_t chunk, const PolicyPtr& policy);

/// Numbers of an AdamW step in the order of the program's f32 argument.
enum StepNumber : uint8_t {
  kMeanFactor,   ///< 1 / examples
  kLearningRate,
  kBeta1, kOneMinusBeta1, kBeta2, kOneMinusBeta2,
  kCorrection1, kCorrection2,  ///< 1 / (1 - beta^t)
  kEpsilon, kWeightDecay, kNumStepNumbers
};
/// Slots with what is summed and remembered for them. All are donated to the step.
struct SlotsState {
  nn::LoraSlots weights, sums, mu, nu;
};
STOW_TREE(SlotsState, weights, sums, mu, nu);
/// AdamW on the mean gradient of one slot compiled, whose sums become zero; no other slot's bytes are
/// written. Where the norm is not finite nothing else changes; where a new weight is not, it stays.
/// Arguments: SlotsState, the adapter's place i32 [], the numbers f32 [kNumStepNumbers]. Results:
/// SlotsState, and the norm of the mean gradient f32 []. `moments_apart`: the moments of the state are
/// those of the slot alone.
/// Source:  Loshchilov and Hutter 2019 (arXiv 1711.05101), algorithm 2, with optax's eps.
ExecutablePtr compile_step(const nn::DecoderConfig& config, const nn::LoraSlotsConfig& slots,
                           int threads, bool moments_apart);

}  // namespace stow::lm
