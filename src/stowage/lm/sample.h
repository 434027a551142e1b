// The choice of the next token from logits, on the host.
// Not a program of the device; generate.h runs those.
#pragma once

#include <cstdint>
#include <span>

#include "stowage/base/inside.h"

namespace stow::lm {

struct SamplingOptions {
  double temperature = 1;  ///< Logits are divided by it; 0 takes the largest, the first of equal ones.
  int64_t top_k = 0;       ///< Only the k largest, the first of equal ones; 0 or less: all.
  /// Keeps the remaining tokens, from the most probable on, while the sum of the probabilities
  /// before is less than this. The most probable token is always kept.
  double top_p = 1;
};

/// The token that a number from [0, 1) picks: the filters in the order temperature, top_k, top_p, then
/// the first token, in the order of ids, up to which the probabilities exceed `uniform` of their sum.
/// Logits must be finite or -inf, and one of them finite.
/// Source: SkyRL tx's sampler.
int32_t sample(std::span<const float> logits, const SamplingOptions& options, double uniform);
/// log softmax(logits)[id], whatever the sampling options.
double log_probability(std::span<const float> logits, int32_t id);
/// A number from [0, 1) for one token of one row.
double uniform_of(uint64_t seed, uint64_t row, uint64_t step);

}  // namespace stow::lm
