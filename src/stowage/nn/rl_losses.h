// Losses of tokens and of pairs of rows, for supervised and reinforcement fine-tuning in one batch.
// Not the log-probabilities; decoder_log_probs of decoder.h computes them.
#pragma once

#include "stowage/api/tree.h"

namespace stow::nn {

/// The loss of a row, which is minimized. Let r = exp(logp - reference). Losses of a token:
///   kCrossEntropy        -logp
///   kImportanceSampling  -r advantage
///   kPpo                 -min(r advantage, clip(r) advantage)  (Schulman et al. 2017, equation 7)
///   kCispo               -stop_gradient(clip(r)) advantage logp  (arXiv 2506.13585, equation 4)
/// Losses of a pair of rows, where m is the weighted sum of logp - reference over a row:
///   kDpo                 -log sigmoid(beta (m chosen - m rejected))  (Rafailov et al. 2023, eq. 7)
enum class TokenLoss : int32_t { kCrossEntropy, kImportanceSampling, kPpo, kCispo, kDpo };

/// The inputs of losses other than log-probabilities.
struct LossBatch {
  Array weights;    // f32 [B, T]; 0: the token is ignored, even if its other inputs are NaN
  Array reference;  // f32 [B, T]: log-probabilities under the policy that sampled the tokens
  Array advantages;            // f32 [B, T]
  Array kind;                  // i32 [B]: a TokenLoss
  Array clip_low, clip_high;   // f32 [B]: bounds of r
  Array beta;                  // f32 [B]: beta of kDpo
  /// i32 [B]: for a chosen row of kDpo, the index of its rejected row; else -1.
  Array rejected;
};
STOW_TREE(LossBatch, weights, reference, advantages, kind, clip_low, clip_high, beta, rejected);

struct RowLosses {
  Array tokens;  ///< f32 [B, T]: weighted losses; zeros in rows of kDpo.
  /// f32 [B]: the sum over tokens divided by max(sum of weights, 1e-9). For kDpo, the loss of the
  /// pair in the chosen row, and 0 in the rejected row.
  Array rows;
};
STOW_TREE(RowLosses, tokens, rows);

/// Returns the losses for log-probabilities f32 [B, T]. Neither a loss nor a gradient of one row or
/// token depends on another, except for the two rows of a pair. Inputs that a row's loss does not
/// read, and tokens of weight 0, are masked with a select, so a NaN or infinity in them has no
/// effect.
RowLosses row_losses(const Array& logprobs, const LossBatch& batch);

}  // namespace stow::nn
