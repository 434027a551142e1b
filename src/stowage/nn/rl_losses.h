// Losses of tokens and of pairs for supervised and reinforcement fine-tuning, mixed within a batch.
// Not log-probabilities; decoder.h's decoder_log_probs makes them.
#pragma once

#include "stowage/api/tree.h"

namespace stow::nn {

/// The loss of a row, which is minimized. With the ratio r = exp(logp - reference), of a token:
///   kCrossEntropy        -logp
///   kImportanceSampling  -r advantage
///   kPpo                 -min(r advantage, clip(r) advantage)  (Schulman et al. 2017, equation 7)
///   kCispo               -stop_gradient(clip(r)) advantage logp  (arXiv 2506.13585, equation 4)
/// and of a pair of rows, with m the weighted sum of logp - reference of a row:
///   kDpo                 -log sigmoid(beta (m chosen - m rejected))  (Rafailov et al. 2023, equation 7)
enum class TokenLoss : int32_t { kCrossEntropy, kImportanceSampling, kPpo, kCispo, kDpo };

/// The inputs of losses beside log-probabilities.
struct LossBatch {
  Array weights;    // f32 [B, T]; 0: the token does not count, whatever else is said of it, even NaN
  Array reference;  // f32 [B, T]: log-probabilities under the policy that sampled the tokens
  Array advantages;            // f32 [B, T]
  Array kind;                  // i32 [B]: a TokenLoss
  Array clip_low, clip_high;   // f32 [B]: bounds of r
  Array beta;                  // f32 [B]: of kDpo
  /// i32 [B]. Of a chosen row of kDpo the number of its rejected row; -1 elsewhere.
  Array rejected;
};
STOW_TREE(LossBatch, weights, reference, advantages, kind, clip_low, clip_high, beta, rejected);

struct RowLosses {
  Array tokens;  ///< f32 [B, T]: weighted; zeros in rows of kDpo.
  /// f32 [B]: the sum over tokens divided by max(sum of weights, 1e-9). A chosen row of kDpo has its
  /// pair's loss, a rejected row 0.
  Array rows;
};
STOW_TREE(RowLosses, tokens, rows);

/// Losses of log-probabilities f32 [B, T]. Neither a value nor a gradient of one row or token depends on
/// what another has, but for the two rows of a pair: what does not count and what the row's loss
/// does not read is never multiplied with anything.
RowLosses row_losses(const Array& logprobs, const LossBatch& batch);

}  // namespace stow::nn
