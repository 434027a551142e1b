// The choice of the next token from logits, on the host.
// Not a program of the device; generate.h runs those.
#pragma once

#include <cstdint>
#include <span>

#include "stowage/base/inside.h"

namespace stow::lm {

struct SamplingOptions {
  double temperature = 1;  ///< Divides the logits. 0: takes the largest, the lowest id of ties.
  int64_t top_k = 0;       ///< Keeps the k largest logits, lower ids first; 0 or less: all.
  /// Keeps the most probable tokens of those left by top_k: a token is kept while the probabilities
  /// of more probable ones sum to less than top_p. The most probable token is always kept.
  double top_p = 1;
};

/// Samples a token id by inversion. Applies temperature, top_k and top_p in this order, then
/// returns the first kept id whose cumulative probability, in the order of ids, exceeds `uniform`,
/// a number in [0, 1). Logits must be finite or -inf, and at least one must be finite.
/// Source: SkyRL tx's sampler.
int32_t sample(std::span<const float> logits, const SamplingOptions& options, double uniform);
/// Returns log softmax(logits)[id], without sampling options.
double log_probability(std::span<const float> logits, int32_t id);
/// Returns a pseudorandom number in [0, 1) for one token of one row.
double uniform_of(uint64_t seed, uint64_t row, uint64_t step);

}  // namespace stow::lm
