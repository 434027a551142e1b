#include "stowage/nn/rl_losses.h"

#include "stowage/api/math.h"
#include "stowage/api/nn.h"
#include "stowage/api/reduce.h"
#include "stowage/api/shaping.h"

namespace stow::nn {
namespace {

constexpr double kLeastWeight = 1e-9;

Array by_row(const Array& x) {
  return x.reshape({x.dim(0), 1});
}

}  // namespace

RowLosses row_losses(const Array& logprobs, const LossBatch& batch) {
  const auto is_kind = [&](TokenLoss kind) {
    return batch.kind == static_cast<int32_t>(kind);
  };
  const Array counts = batch.weights != 0.0;  // [B, T]
  const Array weights = where(counts, batch.weights, 0.0);
  const Array logp = where(counts, logprobs, 0.0);

  // A ratio is made only where it is used: an overflow elsewhere would make gradients NaN.
  const Array has_advantage = logical_and(
      by_row(logical_or(is_kind(TokenLoss::kImportanceSampling),
                        logical_or(is_kind(TokenLoss::kPpo), is_kind(TokenLoss::kCispo)))),
      logical_and(counts, batch.advantages != 0.0));
  const Array advantage = where(has_advantage, batch.advantages, 0.0);
  const Array change = where(has_advantage, logp - batch.reference, 0.0);
  const Array fixed_ratio = exp(stop_gradient(change));
  const Array clipped =
      minimum(maximum(fixed_ratio, by_row(batch.clip_low)), by_row(batch.clip_high));
  const Array is_clipped = logical_and(by_row(is_kind(TokenLoss::kPpo)),
                                       clipped * advantage < fixed_ratio * advantage);
  const Array has_ratio = logical_and(
      has_advantage,
      logical_and(logical_not(is_clipped), by_row(logical_not(is_kind(TokenLoss::kCispo)))));
  const Array ratio = exp(where(has_ratio, change, 0.0));

  const Array of_ratio = -where(is_clipped, clipped, ratio) * advantage;
  const Array of_cispo = -clipped * advantage * logp;
  const Array loss =
      where(by_row(is_kind(TokenLoss::kCrossEntropy)), -logp,
            where(by_row(is_kind(TokenLoss::kCispo)), of_cispo, of_ratio));
  const Array is_pair = is_kind(TokenLoss::kDpo);
  const Array tokens = where(by_row(is_pair), 0.0, weights * loss);

  const Array moved = where(logical_and(counts, by_row(is_pair)), logp - batch.reference, 0.0);
  const Array margin = sum(weights * moved, 1);  // [B]
  const Array is_chosen = logical_and(is_pair, batch.rejected >= 0);
  const Array other = take(margin, maximum(batch.rejected, 0), 0, IndexMode::kClip);
  const Array difference = where(is_chosen, margin - other, 0.0);
  const Array pair = where(is_chosen, softplus(-batch.beta * difference), 0.0);
  return {tokens, sum(tokens, 1) / maximum(sum(weights, 1), kLeastWeight) + pair};
}

}  // namespace stow::nn
