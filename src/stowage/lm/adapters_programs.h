// The compiled programs of lm::Adapters: a pass over a batch, and an optimizer step of one slot.
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
  bool has_intervals = false;    ///< True if the batch has positions, lo and hi.
  bool has_pairs = false;        ///< True if there are rows of kDpo: the base model runs too.
  bool gradients = true;         ///< False: only log-probabilities and losses.
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

/// The results of a pass.
struct PassResult {
  std::optional<nn::LoraSlots> sums;  // gradient sums, with the batch's gradients added
  Array logprobs;  // f32 [B, T]
  nn::RowLosses losses;
};
STOW_TREE(PassResult, sums, logprobs, losses);

/// Compiles a pass. Its arguments: those of the model (Model::arguments()), LoraSlots, SlotScales,
/// the gradient sums if shape.gradients (donated), and a PassBatch. Its results: a PassResult.
ExecutablePtr compile_pass(const Model& model, const nn::LoraSlotsConfig& slots,
                           const PassShape& shape, int64_t chunk, const PolicyPtr& policy);

/// Indices of the numbers of an AdamW step in the program's f32 argument.
enum StepNumber : uint8_t {
  kMeanFactor,   ///< 1 / examples
  kLearningRate,
  kBeta1, kOneMinusBeta1, kBeta2, kOneMinusBeta2,
  kCorrection1, kCorrection2,  ///< 1 / (1 - beta^t)
  kEpsilon, kWeightDecay, kNumStepNumbers
};
/// The weights, gradient sums and moments of all slots. All are donated to the step.
struct SlotsState {
  nn::LoraSlots weights, sums, mu, nu;
};
STOW_TREE(SlotsState, weights, sums, mu, nu);
/// Compiles an AdamW step of one slot: it uses the mean gradient, zeroes the slot's gradient sums
/// and writes no bytes of other slots. If the norm is not finite, weights and moments do not
/// change; a weight whose new value is not finite keeps the old value. Its arguments: SlotsState,
/// the slot minus 1 as i32 [], the numbers f32 [kNumStepNumbers]. Its results: SlotsState, and the
/// norm of the mean gradient f32 []. `has_single_slot_moments`: true: the state's moments are those
/// of the one slot.
/// Source:  Loshchilov and Hutter 2019 (arXiv 1711.05101), algorithm 2, with optax's eps.
ExecutablePtr compile_step(const nn::DecoderConfig& config, const nn::LoraSlotsConfig& slots,
                           int threads, bool has_single_slot_moments);

}  // namespace stow::lm
